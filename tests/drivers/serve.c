/* A server of a device for tests: `serve DRIVER OPTIONS ENDPOINT LIBRARY KEY MEMORY SECONDS IDLE`; an empty
 * LIBRARY is the system's. Prints where it listens, ends on SIGTERM. The driver `host` takes a table of functions as an image, which no other process has; here
 * its image is a name for the table that is linked in. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inlay_serve.h"

extern const inlay_host_kernel_t kernels[];
extern const size_t kernels_bytes;

static inlay_server_t *server;

static void *take(void *user, size_t bytes, size_t align)
{
    void *memory = NULL;
    (void)user;
    if (align < sizeof(void *)) align = sizeof(void *);
    return posix_memalign(&memory, align, bytes ? bytes : 1) ? NULL : memory;
}

static void give(void *user, void *memory, size_t bytes, size_t align)
{
    (void)user, (void)bytes, (void)align;
    free(memory);
}

static int64_t now(void *user)
{
    struct timespec t;
    (void)user;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + 7000000000; /* a clock of its own */
}

static inlay_status_t load_by_name(inlay_device_t *device, const void *image, size_t bytes,
                                   inlay_program_t **program, char *message, size_t message_bytes)
{
    static const char name[] = "the kernels of the conformance suite";
    if (bytes != sizeof name - 1 || memcmp(image, name, bytes) != 0) {
        snprintf(message, message_bytes, "found no name of kernels");
        return INLAY_BUILD_FAILED;
    }
    return inlay_driver_host.load(device, kernels, kernels_bytes, program, message, message_bytes);
}

#if defined(__SANITIZE_ADDRESS__)
int __lsan_do_recoverable_leak_check(void); /* of the sanitizer's interface */

static const inlay_driver_t *offered;

/* A client's process ends without the end of a program, where leaks are looked for. */
static void close_and_look(inlay_device_t *device)
{
    offered->close(device);
    (void)__lsan_do_recoverable_leak_check();
}
#endif

static void stop(int signal)
{
    (void)signal;
    inlay_server_stop(server);
}

int main(int count, char **words)
{
    static const inlay_driver_t *const drivers[] = {&inlay_driver_null, &inlay_driver_host,
                                                    &inlay_driver_opencl, &inlay_driver_native};
    const inlay_host_t host = {.allocate = take, .release = give, .now = now};
    inlay_server_config_t config;
    inlay_driver_t driver;
    char message[512] = "";
    size_t i;
    if (count < 9) return 2;
    memset(&config, 0, sizeof config);
    for (i = 0; i < sizeof drivers / sizeof drivers[0]; i++)
        if (strcmp(drivers[i]->name, words[1]) == 0) config.driver = drivers[i];
    if (!config.driver) return 2;
    driver = *config.driver;
    if (config.driver == &inlay_driver_host) driver.load = load_by_name;
#if defined(__SANITIZE_ADDRESS__)
    offered = config.driver;
    driver.close = close_and_look;
#endif
    config.driver = &driver;
    config.options = words[2];
    config.endpoint = words[3];
    config.library = words[4][0] ? words[4] : NULL;
    config.key = words[5];
    config.memory_bytes = strtoull(words[6], NULL, 10);
    config.seconds = (uint32_t)strtoul(words[7], NULL, 10);
    config.idle_seconds = (uint32_t)strtoul(words[8], NULL, 10);
    setbuf(stdout, NULL);
    if (inlay_server_open(&host, &config, &server, message, sizeof message) != INLAY_OK) {
        printf("ABSENT %s\n", message);
        return 1;
    }
    signal(SIGTERM, stop);
    printf("%s\n", inlay_server_endpoint(server));
    inlay_server_run(server);
    inlay_server_close(server);
    printf("ended\n");
    return 0;
}
