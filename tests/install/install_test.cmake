# cmake -DBUILD= -DCONSUMER= -DSCRATCH= -DCOMPILER= -DVERSION= -P install_test.cmake
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
foreach(wanted status.h compile.h options.h)
  if(NOT wanted IN_LIST headers)
    message(FATAL_ERROR "include/spillway/${wanted} is not installed; there are: ${headers}")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${SCRATCH}/build -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix
    -DCMAKE_CXX_COMPILER=${COMPILER})
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
run(${SCRATCH}/build/consumer ${SCRATCH}/no-such-model.gguf)

# The installed program and its worker lie side by side.
run(${SCRATCH}/prefix/bin/spillway --version)
if(NOT output MATCHES "spillway ${VERSION}")
  message(FATAL_ERROR "spillway --version printed: ${output}")
endif()
if(NOT EXISTS ${SCRATCH}/prefix/bin/spillway-worker)
  message(FATAL_ERROR "spillway-worker is not installed beside spillway")
endif()
file(REMOVE_RECURSE ${SCRATCH})
