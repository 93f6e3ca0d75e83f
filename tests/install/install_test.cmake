# cmake -DBUILD= -DCONSUMER= -DEXAMPLES= -DMODEL_WRITER= -DSCRATCH= -DCOMPILER= -DC_COMPILER=
#   -DPKG_CONFIG= -DVERSION= -P install_test.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGV}\n${output}\nexit code ${result}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)

file(GLOB headers RELATIVE ${SCRATCH}/prefix/include/spillway ${SCRATCH}/prefix/include/spillway/*)
foreach(wanted status.h compile.h options.h session.h conversation.h)
  if(NOT wanted IN_LIST headers)
    message(FATAL_ERROR "include/spillway/${wanted} is not installed; there are: ${headers}")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/build -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix
    -DCMAKE_CXX_COMPILER=${COMPILER})
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/consumer ${SCRATCH}/no-such-model.gguf)

# The examples, found through find_package ...
run(${MODEL_WRITER} ${SCRATCH}/tiny.gguf)
run(${CMAKE_COMMAND} -S ${EXAMPLES} -B ${SCRATCH}/examples -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_C_COMPILER=${C_COMPILER})
run(${CMAKE_COMMAND} --build ${SCRATCH}/examples)
run(${SCRATCH}/examples/hello_c ${SCRATCH}/tiny.gguf ${SCRATCH}/package Hello)
set(answer_c "${output}")
if(NOT output MATCHES "\\[end_of_text\\]|\\[max_new_tokens\\]")
  message(FATAL_ERROR "hello_c printed: ${output}")
endif()
run(${SCRATCH}/examples/hello_cc ${SCRATCH}/package Hello Again)
if(NOT output MATCHES "turns: 4")
  message(FATAL_ERROR "hello_cc printed: ${output}")
endif()

# ... and through pkg-config, from a prefix that moved.
file(RENAME ${SCRATCH}/prefix ${SCRATCH}/moved)
file(GLOB_RECURSE pc ${SCRATCH}/moved/spillway.pc)
get_filename_component(pc_folder ${pc} DIRECTORY)
set(ENV{PKG_CONFIG_PATH} ${pc_folder})
run(${PKG_CONFIG} --cflags --libs spillway)
string(STRIP "${output}" flags)
separate_arguments(flags UNIX_COMMAND "${flags}")
run(${C_COMPILER} -std=c99 -Wall -Wextra -Wpedantic -Werror ${EXAMPLES}/hello.c
    -o ${SCRATCH}/hello_pc ${flags})
run(${PKG_CONFIG} --variable=libdir spillway)
string(STRIP "${output}" libdir)
set(ENV{LD_LIBRARY_PATH} ${libdir})
run(${SCRATCH}/hello_pc ${SCRATCH}/tiny.gguf ${SCRATCH}/package Hello)
if(NOT output STREQUAL answer_c)
  message(FATAL_ERROR "the program made with pkg-config printed: ${output}")
endif()
run(${PKG_CONFIG} --modversion spillway)
if(NOT output MATCHES "^${VERSION}")
  message(FATAL_ERROR "spillway.pc has version ${output}")
endif()
file(RENAME ${SCRATCH}/moved ${SCRATCH}/prefix)

# The installed program and its worker lie side by side.
run(${SCRATCH}/prefix/bin/spillway --version)
if(NOT output MATCHES "spillway ${VERSION}")
  message(FATAL_ERROR "spillway --version printed: ${output}")
endif()
if(NOT EXISTS ${SCRATCH}/prefix/bin/spillway-worker)
  message(FATAL_ERROR "spillway-worker is not installed beside spillway")
endif()
file(REMOVE_RECURSE ${SCRATCH})
