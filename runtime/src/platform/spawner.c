/* A process that makes processes, for a server of devices.
 *
 * A process with threads and libraries of devices can make no good copy of itself. So the server makes
 * one copy before it has any of them; this copy does nothing but copy itself on request, tell how the
 * copies end, and end with its server, and them with it.
 *
 * Both talk over a local socket: an order is 8 bytes, with the files that a process is to have; so is a
 * report. */
#define _POSIX_C_SOURCE 200809L
#include "platform/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef MSG_NOSIGNAL
enum { QUIETLY = MSG_NOSIGNAL };
#else
enum { QUIETLY = 0 };
#endif

enum { ORDER_START, ORDER_KILL, MOST_FILES = 1 << 16 };

typedef struct order {
    uint32_t what, id;
} order_t;

typedef struct child {
    struct child *next;
    pid_t process;
    uint32_t id;
} child_t;

typedef struct nest {
    int file;
    spawner_work_t work;
    const void *argument;
    child_t *children;
} nest_t;

typedef union file_room {
    char bytes[CMSG_SPACE(SPAWNER_FILES * sizeof(int))];
    struct cmsghdr align;
} file_room_t;

/* ------------------------------------------------------------------------- in the spawner's process */

static void report(const nest_t *nest, uint32_t id, int status)
{
    spawner_report_t r;
    r.id = id;
    r.status = status;
    while (send(nest->file, &r, sizeof r, QUIETLY) < 0 && errno == EINTR) continue;
}

/* Read an order and the files that came with it, or -1; false at the end. */
static int read_order(const nest_t *nest, order_t *order, int *files)
{
    int i;
    struct iovec part;
    struct msghdr message;
    struct cmsghdr *c;
    file_room_t room;
    ssize_t came;
    part.iov_base = order;
    part.iov_len = sizeof *order;
    memset(&message, 0, sizeof message);
    memset(&room, 0, sizeof room);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room.bytes;
    message.msg_controllen = sizeof room.bytes;
    do came = recvmsg(nest->file, &message, MSG_WAITALL);
    while (came < 0 && errno == EINTR);
    for (i = 0; i < SPAWNER_FILES; i++) files[i] = -1;
    c = came > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(files, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
    return came == (ssize_t)sizeof *order;
}

static void start(nest_t *nest, uint32_t id, const int *files)
{
    child_t *child = calloc(1, sizeof *child);
    const pid_t made = child ? fork() : -1;
    if (made == 0) {
        const struct rlimit none = {0, 0};
        sigset_t empty;
        close(nest->file);
        free(child);
        setrlimit(RLIMIT_CORE, &none); /* a client's faults shall not fill the disk */
        sigemptyset(&empty);
        sigprocmask(SIG_SETMASK, &empty, NULL);
        nest->work(nest->argument, files);
        _exit(0);
    }
    if (made < 0) {
        free(child);
        report(nest, id, -1);
        return;
    }
    child->id = id;
    child->process = made;
    child->next = nest->children;
    nest->children = child;
}

static void end(const nest_t *nest, uint32_t id)
{
    const child_t *child = nest->children;
    while (child && child->id != id) child = child->next;
    if (child) kill(child->process, SIGKILL);
}

static void reap(nest_t *nest)
{
    int status;
    pid_t process;
    while ((process = waitpid(-1, &status, WNOHANG)) > 0) {
        child_t **at = &nest->children, *child;
        while (*at && (*at)->process != process) at = &(*at)->next;
        child = *at;
        if (!child) continue;
        *at = child->next;
        report(nest, child->id, status);
        free(child);
    }
}

static void obey(nest_t *nest)
{
    sigset_t waiting;
    int is_over = 0;
    sigemptyset(&waiting);
    while (!is_over) {
        fd_set files;
        order_t order;
        int received[SPAWNER_FILES], i;
        FD_ZERO(&files);
        FD_SET(nest->file, &files);
        /* Children that end while it does not wait are noticed when it does. */
        if (pselect(nest->file + 1, &files, NULL, NULL, NULL, &waiting) > 0) {
            is_over = !read_order(nest, &order, received);
            if (!is_over && order.what == ORDER_START) start(nest, order.id, received);
            if (!is_over && order.what == ORDER_KILL) end(nest, order.id);
            for (i = 0; i < SPAWNER_FILES; i++)
                if (received[i] >= 0) close(received[i]);
        }
        reap(nest);
    }
    while (nest->children) {
        child_t *child = nest->children;
        nest->children = child->next;
        kill(child->process, SIGKILL);
        waitpid(child->process, NULL, 0);
        free(child);
    }
}

static void note(int number) { (void)number; }

/* Have no signal handlers, terminal or files of the program. */
static void be_apart(int file)
{
    const long most = sysconf(_SC_OPEN_MAX);
    struct sigaction plain;
    sigset_t children;
    int i, empty;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    for (i = 1; i < 32; i++) sigaction(i, &plain, NULL);
    plain.sa_handler = note;
    sigaction(SIGCHLD, &plain, NULL);
    plain.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &plain, NULL);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_SETMASK, &children, NULL);
    setsid();
    for (i = 3; i < (most > 0 && most < MOST_FILES ? most : MOST_FILES); i++)
        if (i != file) close(i);
    empty = open("/dev/null", O_RDWR);
    if (empty >= 0) dup2(empty, 0);
    dup2(2, 1); /* what waits for the end of the program's output does not wait for this */
    if (empty > 2) close(empty);
}

/* --------------------------------------------------------------------------- in the server's process */

int inlay_spawner_open(spawner_t *spawner, spawner_work_t work, const void *argument)
{
    int ends[2];
    spawner->file = -1;
    spawner->process = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    spawner->process = fork();
    if (spawner->process == 0) {
        nest_t nest;
        nest.file = ends[1];
        nest.work = work;
        nest.argument = argument;
        nest.children = NULL;
        be_apart(ends[1]);
        obey(&nest);
        _exit(0);
    }
    close(ends[1]);
    if (spawner->process < 0) close(ends[0]);
    else spawner->file = ends[0];
    return spawner->process > 0;
}

static int give_order(const spawner_t *spawner, uint32_t what, uint32_t id, const int *files)
{
    struct iovec part;
    struct msghdr message;
    struct cmsghdr *c;
    file_room_t room;
    order_t order;
    size_t n = 0;
    ssize_t taken;
    if (spawner->file < 0) return 0;
    while (files && n < SPAWNER_FILES && files[n] >= 0) n++;
    order.what = what;
    order.id = id;
    part.iov_base = &order;
    part.iov_len = sizeof order;
    memset(&message, 0, sizeof message);
    memset(&room, 0, sizeof room);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (n) {
        message.msg_control = room.bytes;
        message.msg_controllen = CMSG_SPACE(n * sizeof *files);
        c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof *files);
        memcpy(CMSG_DATA(c), files, n * sizeof *files);
    }
    do taken = sendmsg(spawner->file, &message, QUIETLY);
    while (taken < 0 && errno == EINTR);
    return taken == (ssize_t)sizeof order;
}

int inlay_spawner_start(const spawner_t *spawner, uint32_t id, const int *files)
{
    return give_order(spawner, ORDER_START, id, files);
}

void inlay_spawner_kill(const spawner_t *spawner, uint32_t id)
{
    (void)give_order(spawner, ORDER_KILL, id, NULL);
}

int inlay_spawner_hear(spawner_t *spawner, spawner_report_t *r, int milliseconds)
{
    struct pollfd item;
    ssize_t came;
    if (spawner->file < 0) return -1;
    item.fd = spawner->file;
    item.events = POLLIN;
    if (poll(&item, 1, milliseconds) <= 0) return 0;
    do came = recv(spawner->file, r, sizeof *r, MSG_WAITALL);
    while (came < 0 && errno == EINTR);
    if (came == (ssize_t)sizeof *r) return 1;
    close(spawner->file);
    spawner->file = -1;
    return -1;
}

void inlay_spawner_close(spawner_t *spawner)
{
    if (spawner->file >= 0) close(spawner->file);
    spawner->file = -1;
    if (spawner->process > 0)
        while (waitpid(spawner->process, NULL, 0) < 0 && errno == EINTR) continue;
    spawner->process = -1;
}
