/* Leave to use registers that an operating system hands out on request (on_request.h). */
#ifndef INLAY_PERMISSION_H
#define INLAY_PERMISSION_H

#include <stddef.h>

/* Whether this process may run code that uses a feature of the processor, after asking the system for it
 * where that is needed. Threads and children made by fork have what their process has; asking again is
 * harmless. Says nothing of processors that lack what needs no asking. For `inlay_host_t.permit`; `user` is
 * not used. */
int inlay_posix_permit(void *user, const char *feature, size_t bytes);

#endif
