# One library target a folder, linked only to what docs/architecture.md allows.
#
#   spillway_layer(qnn/htp MAY_USE qnn/api base)
#
# makes the target spillway_qnn_htp from src/qnn/htp/*.cc. Configuring fails
# when a source or header of the folder includes a folder that MAY_USE does not
# name, so the arrows of the architecture cannot rot.

set(SPILLWAY_LAYERS base model graph decoder host kvcache quantize qnn/api qnn/htp qnn/lower
    package compiler runtime eval exporters report capi
    CACHE INTERNAL "every folder of src")

function(spillway_check_includes folder allowed)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.h
       ${PROJECT_SOURCE_DIR}/src/${folder}/*.cc)
  foreach(file IN LISTS files)
    # Re-run this check when the file changes.
    set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} lines REGEX "^#include \"")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"(.*)/[^/]*\".*" "\\1" used "${line}")
      if(used IN_LIST SPILLWAY_LAYERS AND NOT used STREQUAL folder AND NOT used IN_LIST allowed)
        message(FATAL_ERROR "${file}: ${line}\n  src/${folder} may include only: ${allowed}")
      endif()
    endforeach()
  endforeach()
endfunction()

function(spillway_layer folder)
  cmake_parse_arguments(ARG "" "" "MAY_USE;LIBS" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  spillway_check_includes(${folder} "${ARG_MAY_USE}")
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*.cc)
  if(NOT sources)
    add_library(spillway_${name} INTERFACE)
    return()
  endif()
  add_library(spillway_${name} STATIC ${sources})
  target_link_libraries(spillway_${name} PUBLIC spillway_options)
  foreach(used IN LISTS ARG_MAY_USE)
    string(REPLACE "/" "_" used_name ${used})
    target_link_libraries(spillway_${name} PUBLIC spillway_${used_name})
  endforeach()
  target_link_libraries(spillway_${name} PRIVATE ${ARG_LIBS})
endfunction()

# spillway_test(folder LIBS ...): one GoogleTest program from tests/<folder>/*_test.cc.
function(spillway_test folder)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name}_test PRIVATE spillway_test_support ${ARG_LIBS} GTest::gmock_main)
  gtest_discover_tests(${name}_test TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 120
                       PROPERTIES TIMEOUT 900 ENVIRONMENT "SPILLWAY_CACHE_DIR=off")
endfunction()
