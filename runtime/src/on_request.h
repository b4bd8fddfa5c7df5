/* Features of processors whose registers an operating system hands out on request. */
#ifndef INLAY_ON_REQUEST_H
#define INLAY_ON_REQUEST_H

#include <stddef.h>
#include <string.h>

/* Whether code that uses a feature, by LLVM's name, faults in a process that has not asked for it: tiles
 * of x86 make what is saved of each thread larger by 8 KB, so Linux keeps them until then. */
static inline int inlay_is_on_request(const char *feature, size_t bytes)
{
    return bytes >= 3 && memcmp(feature, "amx", 3) == 0;
}

#endif
