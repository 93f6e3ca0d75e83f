// write_tiny_model PATH: a small random model for the examples.

#include "tests/support/tiny_model.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  spillway::test::WriteTinyModel(argv[1], spillway::test::TinyModelSpec());
  return 0;
}
