/* The part of the OpenCL 1.2 interface that the driver uses, found in the system's library when a
 * device is opened: nothing is needed to build or to link. Names and numbers are those of the
 * specification (Khronos, "The OpenCL Specification", version 1.2). */
#ifndef INLAY_OPENCL_API_H
#define INLAY_OPENCL_API_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define INLAY_CL_CALL __stdcall
#else
#define INLAY_CL_CALL
#endif

typedef struct cl_platform *cl_platform;
typedef struct cl_device *cl_device;
typedef struct cl_context *cl_context;
typedef struct cl_queue *cl_queue;
typedef struct cl_memory *cl_memory;
typedef struct cl_program *cl_program;
typedef struct cl_kernel *cl_kernel;
typedef struct cl_event *cl_event;

enum {
    CL_SUCCESS = 0,
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
    CL_OUT_OF_RESOURCES = -5,
    CL_OUT_OF_HOST_MEMORY = -6,
    CL_INVALID_BUFFER_SIZE = -61,

    CL_COMPLETE = 0,
    CL_QUEUE_PROFILING_ENABLE = 1 << 1,
    CL_PROFILING_COMMAND_QUEUED = 0x1280,
    CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283,

    CL_DEVICE_TYPE_CPU = 1 << 1,
    CL_DEVICE_TYPE_GPU = 1 << 2,
    CL_DEVICE_TYPE_ACCELERATOR = 1 << 3,

    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_NAME = 0x102B,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    CL_DEVICE_HALF_FP_CONFIG = 0x1033,
    CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,

    CL_DEVICE_PARTITION_EQUALLY = 0x1086,

    CL_MEM_READ_WRITE = 1,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_NUM_ARGS = 0x1191,
    CL_KERNEL_WORK_GROUP_SIZE = 0x11B0
};

typedef int32_t cl_status;
typedef void(INLAY_CL_CALL *cl_event_callback)(cl_event event, cl_status status, void *user);

/* X(name, result, parameters): each becomes a member of cl_api. */
#define INLAY_CL_FUNCTIONS(X)                                                                      \
    X(GetPlatformIDs, cl_status, (uint32_t, cl_platform *, uint32_t *))                            \
    X(GetDeviceIDs, cl_status, (cl_platform, uint64_t, uint32_t, cl_device *, uint32_t *))         \
    X(GetDeviceInfo, cl_status, (cl_device, uint32_t, size_t, void *, size_t *))                   \
    X(CreateSubDevices, cl_status,                                                                 \
      (cl_device, const intptr_t *, uint32_t, cl_device *, uint32_t *))                            \
    X(CreateContext, cl_context,                                                                   \
      (const intptr_t *, uint32_t, const cl_device *,                                              \
       void(INLAY_CL_CALL *)(const char *, const void *, size_t, void *), void *, cl_status *))    \
    X(ReleaseContext, cl_status, (cl_context))                                                     \
    X(CreateCommandQueue, cl_queue, (cl_context, cl_device, uint64_t, cl_status *))                \
    X(ReleaseCommandQueue, cl_status, (cl_queue))                                                  \
    X(CreateBuffer, cl_memory, (cl_context, uint64_t, size_t, void *, cl_status *))                \
    X(ReleaseMemObject, cl_status, (cl_memory))                                                    \
    X(CreateProgramWithSource, cl_program,                                                         \
      (cl_context, uint32_t, const char **, const size_t *, cl_status *))                          \
    X(BuildProgram, cl_status,                                                                     \
      (cl_program, uint32_t, const cl_device *, const char *,                                      \
       void(INLAY_CL_CALL *)(cl_program, void *), void *))                                         \
    X(GetProgramBuildInfo, cl_status,                                                              \
      (cl_program, cl_device, uint32_t, size_t, void *, size_t *))                                 \
    X(ReleaseProgram, cl_status, (cl_program))                                                     \
    X(CreateKernel, cl_kernel, (cl_program, const char *, cl_status *))                            \
    X(GetKernelInfo, cl_status, (cl_kernel, uint32_t, size_t, void *, size_t *))                   \
    X(GetKernelWorkGroupInfo, cl_status,                                                           \
      (cl_kernel, cl_device, uint32_t, size_t, void *, size_t *))                                  \
    X(SetKernelArg, cl_status, (cl_kernel, uint32_t, size_t, const void *))                        \
    X(ReleaseKernel, cl_status, (cl_kernel))                                                       \
    X(EnqueueReadBuffer, cl_status,                                                                \
      (cl_queue, cl_memory, uint32_t, size_t, size_t, void *, uint32_t, const cl_event *,          \
       cl_event *))                                                                                \
    X(EnqueueWriteBuffer, cl_status,                                                               \
      (cl_queue, cl_memory, uint32_t, size_t, size_t, const void *, uint32_t, const cl_event *,    \
       cl_event *))                                                                                \
    X(EnqueueCopyBuffer, cl_status,                                                                \
      (cl_queue, cl_memory, cl_memory, size_t, size_t, size_t, uint32_t, const cl_event *,         \
       cl_event *))                                                                                \
    X(EnqueueNDRangeKernel, cl_status,                                                             \
      (cl_queue, cl_kernel, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,    \
       const cl_event *, cl_event *))                                                              \
    X(EnqueueMarkerWithWaitList, cl_status, (cl_queue, uint32_t, const cl_event *, cl_event *))    \
    X(SetEventCallback, cl_status, (cl_event, cl_status, cl_event_callback, void *))               \
    X(GetEventProfilingInfo, cl_status, (cl_event, uint32_t, size_t, void *, size_t *))            \
    X(RetainEvent, cl_status, (cl_event))                                                          \
    X(ReleaseEvent, cl_status, (cl_event))                                                         \
    X(Flush, cl_status, (cl_queue))                                                                \
    X(Finish, cl_status, (cl_queue))

typedef struct cl_api {
#define INLAY_CL_MEMBER(name, result, parameters) result(INLAY_CL_CALL *name) parameters;
    INLAY_CL_FUNCTIONS(INLAY_CL_MEMBER)
#undef INLAY_CL_MEMBER
} cl_api;

#endif
