# What `cmake --install` puts in place: the programs, the library with its public
# headers, and what find_package(spillway) reads.

# The library for others: every layer in one shared object that shows only what
# include/spillway marks with SPILLWAY_EXPORT.
function(spillway_shared_library)
  add_library(spillway_shared SHARED)
  foreach(layer IN LISTS SPILLWAY_LAYERS)
    string(REPLACE "/" "_" name ${layer})
    if(NOT TARGET spillway_${name})
      continue()
    endif()
    get_target_property(type spillway_${name} TYPE)
    if(NOT type STREQUAL "STATIC_LIBRARY")
      continue()
    endif()
    # All objects: nothing in the library itself refers to the public functions.
    target_sources(spillway_shared PRIVATE $<TARGET_OBJECTS:spillway_${name}>)
    get_target_property(libraries spillway_${name} LINK_LIBRARIES)
    list(FILTER libraries EXCLUDE REGEX "^spillway_(${SPILLWAY_LAYER_PATTERN})$")
    target_link_libraries(spillway_shared PRIVATE ${libraries})
  endforeach()
  set_target_properties(spillway_shared PROPERTIES
    OUTPUT_NAME spillway EXPORT_NAME spillway LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(spillway_shared INTERFACE cxx_std_20)
  target_include_directories(spillway_shared INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(NOT SPILLWAY_SANITIZE)
    target_link_options(spillway_shared PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

# status.h is part of every file; its few functions are all public.
set_source_files_properties(src/base/status.cc PROPERTIES COMPILE_OPTIONS -fvisibility=default)

string(REPLACE ";" "|" SPILLWAY_LAYER_PATTERN "${SPILLWAY_LAYERS}")
string(REPLACE "/" "_" SPILLWAY_LAYER_PATTERN "${SPILLWAY_LAYER_PATTERN}")
spillway_shared_library()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/spillway)
install(TARGETS spillway_shared EXPORT spillwayTargets)
foreach(program spillway spillway-worker)
  if(TARGET ${program})
    install(TARGETS ${program})
  endif()
endforeach()
install(FILES include/spillway.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/spillway DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT spillwayTargets NAMESPACE spillway:: DESTINATION ${package_folder})

# For pkg-config; its folder says where the rest is, so that the prefix may move.
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH SPILLWAY_PREFIX_FROM_PC /${pkgconfig_folder} /)
configure_file(cmake/spillway.pc.in ${PROJECT_BINARY_DIR}/spillway.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/spillway.pc DESTINATION ${pkgconfig_folder})

include(CMakePackageConfigHelpers)
configure_package_config_file(cmake/spillwayConfig.cmake.in
  ${PROJECT_BINARY_DIR}/spillwayConfig.cmake INSTALL_DESTINATION ${package_folder})
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/spillwayConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/spillwayConfig.cmake
              ${PROJECT_BINARY_DIR}/spillwayConfigVersion.cmake
        DESTINATION ${package_folder})
