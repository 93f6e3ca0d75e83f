// Marks what the shared library shows; everything else is hidden.

#ifndef SPILLWAY_EXPORT_H_
#define SPILLWAY_EXPORT_H_

#define SPILLWAY_EXPORT __attribute__((visibility("default")))

#endif  // SPILLWAY_EXPORT_H_
