# Cross build for 64-bit ARM Linux with Debian's compiler; the libraries come from
# .deps/aarch64-sysroot, which scripts/cross-test fills with Debian's arm64 packages.
# Tests run under qemu-user.
get_filename_component(spillway_sysroot "${CMAKE_CURRENT_LIST_DIR}/../.deps/aarch64-sysroot" ABSOLUTE)
set(spillway_libraries ${spillway_sysroot}/usr/lib/aarch64-linux-gnu)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_FLAGS_INIT "-isystem ${spillway_sysroot}/usr/include")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${spillway_libraries}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,-rpath-link,${spillway_libraries}")

set(CMAKE_FIND_ROOT_PATH ${spillway_sysroot} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${spillway_libraries}/pkgconfig:${spillway_sysroot}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${spillway_sysroot})

set(CMAKE_CROSSCOMPILING_EMULATOR
  qemu-aarch64;-L;/usr/aarch64-linux-gnu;-E;LD_LIBRARY_PATH=${spillway_libraries})
