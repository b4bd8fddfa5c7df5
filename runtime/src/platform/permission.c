/* What Linux hands out on request: the tiles of x86. */
#define _GNU_SOURCE
#include "platform/permission.h"

#include "on_request.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>

enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* of <asm/prctl.h>, which may be older */

/* Processors without tiles, older kernels and some virtual machines refuse, and so does Linux where a
 * thread has a stack for signals that would be too small. */
static int ask_for_tiles(void) { return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0; }
#else
static int ask_for_tiles(void) { return 0; }
#endif

int inlay_posix_permit(void *user, const char *feature, size_t bytes)
{
    (void)user;
    return !inlay_is_on_request(feature, bytes) || ask_for_tiles();
}
