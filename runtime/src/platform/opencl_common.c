/* Memory and failures of the driver of OpenCL devices: see opencl.c. */
#define _POSIX_C_SOURCE 200809L
#include "platform/opencl_device.h"

#include <stdio.h>
#include <string.h>

inlay_status_t inlay_cl_status(cl_status status)
{
    switch (status) {
    case CL_SUCCESS: return INLAY_OK;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE: return INLAY_OUT_OF_MEMORY;
    default: return INLAY_DEVICE_FAILED;
    }
}

inlay_status_t inlay_cl_failed(cl_status status, const char *what, char *message, size_t bytes)
{
    if (bytes) snprintf(message, bytes, "OpenCL answers %d to %s", (int)status, what);
    return inlay_cl_status(status);
}

inlay_status_t inlay_cl_refuse(const char *why, char *message, size_t bytes)
{
    if (bytes) snprintf(message, bytes, "%s", why);
    return INLAY_BAD_ARGUMENT;
}
