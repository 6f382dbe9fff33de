/* arrays.h -- the C API of NumPy, whose table of functions bind.c loads for all files. */
#ifndef PE_ARRAYS_H
#define PE_ARRAYS_H

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL pe_numpy
#ifndef PE_LOADS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#define A(object) ((PyArrayObject *)(object))

#endif
