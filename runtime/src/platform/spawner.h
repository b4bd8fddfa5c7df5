/* A process that makes processes, for a server of devices: see spawner.c. */
#ifndef INLAY_SPAWNER_H
#define INLAY_SPAWNER_H

#include <stdint.h>
#include <sys/types.h>

typedef struct spawner {
    pid_t process;
    int file; /* -1 where it has ended */
} spawner_t;

enum { SPAWNER_FILES = 2 };

/* What a new process does with the files that it is given, -1 for none; it ends when this returns. */
typedef void (*spawner_work_t)(const void *argument, const int *files);

/* How a process ended, as `waitpid` says; -1 where it never began. */
typedef struct spawner_report {
    uint32_t id;
    int32_t status;
} spawner_report_t;

/* Begin. Its processes are copies of this one as it is now; false on failure. */
int inlay_spawner_open(spawner_t *spawner, spawner_work_t work, const void *argument);
/* Make a process that has files (SPAWNER_FILES; the first is one); false where none can be made any more. */
int inlay_spawner_start(const spawner_t *spawner, uint32_t id, const int *files);
/* End a process, wherever it is in its work. */
void inlay_spawner_kill(const spawner_t *spawner, uint32_t id);
/* Store how a process ended: 1; 0 where there is no news, -1 where there will be none. Waits for news
 * at most so many milliseconds. */
int inlay_spawner_hear(spawner_t *spawner, spawner_report_t *report, int milliseconds);
/* End it, and the processes that are left. */
void inlay_spawner_close(spawner_t *spawner);

#endif
