/* Channels between a server of devices and the processes of its clients: pairs of local sockets.
 *
 * A message is the lengths of its parts, its head and its body, as wire.h has them. Both ends are
 * processes of one program, so lengths are as this machine writes them. The process is believed nothing
 * all the same: what a client runs may have spoiled all that is in it.
 *
 * Large bodies do not go through the socket, which holds little and so costs a change of processes every
 * few pages: where the system has memory for that, both ends share *slots*. The server alone gives them
 * out, to a request from when it is sent until it has ended. */
#define _GNU_SOURCE
#include "platform/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef MSG_NOSIGNAL
enum { QUIETLY = MSG_NOSIGNAL };
#else
enum { QUIETLY = 0 };
#endif

enum { PARTS = 3 };

/* Return a file of memory that cannot be cut off under who has mapped it; -1 where there is none. */
static int open_memory(size_t bytes)
{
#if defined(__linux__) && defined(MFD_ALLOW_SEALING)
    const int file = memfd_create("inlay", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) return -1;
    if (ftruncate(file, (off_t)bytes) == 0 &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return file;
    close(file);
#endif
    (void)bytes;
    return -1;
}

static uint8_t *place(uint8_t *memory, uint32_t slot)
{
    return memory + (size_t)(slot - 1) * WIRE_CHUNK;
}

static uint8_t *map_memory(int file, size_t bytes)
{
    void *found = file < 0 ? MAP_FAILED
                           : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return found == MAP_FAILED ? NULL : found;
}

int inlay_channel_open(channel_t *channel, uint64_t window, int *files)
{
    const size_t room = (size_t)(window / WIRE_CHUNK) * WIRE_CHUNK;
    int ends[2];
    memset(channel, 0, sizeof *channel);
    channel->end = &channel->first;
    channel->file = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    fcntl(ends[0], F_SETFL, fcntl(ends[0], F_GETFL) | O_NONBLOCK);
    channel->file = ends[0];
    files[0] = ends[1];
    files[1] = open_memory(room);
    channel->memory = map_memory(files[1], room);
    channel->slots = channel->memory ? (uint32_t)(room / WIRE_CHUNK) : 0;
    return 1;
}

void inlay_channel_close_files(const int *files)
{
    int i;
    for (i = 0; i < CHANNEL_FILES; i++)
        if (files[i] >= 0) close(files[i]);
}

uint32_t inlay_channel_take_slot(channel_t *channel)
{
    uint32_t i;
    for (i = 0; i < channel->slots; i++) {
        if (channel->is_taken[i]) continue;
        channel->is_taken[i] = 1;
        return i + 1;
    }
    return CHANNEL_NO_SLOT;
}

void inlay_channel_give_slot(channel_t *channel, uint32_t slot)
{
    if (slot && slot <= channel->slots) channel->is_taken[slot - 1] = 0;
}

static void drop_coming(const carrier_t *carrier, channel_t *channel)
{
    if (channel->got >= sizeof channel->frame) inlay_packet_clear(carrier, &channel->coming);
    channel->got = 0;
}

static void drop_waiting(const carrier_t *carrier, channel_t *channel)
{
    while (channel->first) {
        packet_t *next = channel->first->next;
        inlay_packet_drop(carrier, channel->first);
        channel->first = next;
    }
    channel->end = &channel->first;
    channel->waiting = channel->sent = 0;
}

void inlay_channel_close(const carrier_t *carrier, channel_t *channel)
{
    drop_waiting(carrier, channel);
    drop_coming(carrier, channel);
    if (channel->file >= 0) close(channel->file);
    if (channel->memory) munmap(channel->memory, (size_t)channel->slots * WIRE_CHUNK);
    channel->file = -1;
    channel->memory = NULL;
    channel->slots = 0;
}

/* Point at what is left of a message from `done` bytes on; returns how many parts that are. */
static int parts_from(size_t done, struct iovec *parts)
{
    int i = 0, n = 0;
    for (; i < PARTS; i++) {
        const size_t skip = done < parts[i].iov_len ? done : parts[i].iov_len;
        done -= skip;
        if (skip == parts[i].iov_len) continue;
        parts[n].iov_base = (uint8_t *)parts[i].iov_base + skip;
        parts[n++].iov_len = parts[i].iov_len - skip;
    }
    return n;
}

static size_t lay_out(const carrier_t *carrier, packet_t *packet, channel_frame_t *frame,
                      struct iovec *parts)
{
    const zmq_api *zmq = &carrier->zmq;
    memset(parts, 0, PARTS * sizeof *parts);
    frame->has_body = packet->has_body;
    frame->slot = packet->slot;
    parts[0].iov_base = frame;
    parts[0].iov_len = sizeof *frame;
    parts[1].iov_base = zmq->data(&packet->head);
    parts[1].iov_len = zmq->size(&packet->head);
    if (packet->has_body) {
        parts[2].iov_base = zmq->data(&packet->body);
        parts[2].iov_len = zmq->size(&packet->body);
    }
    frame->head_bytes = (uint32_t)parts[1].iov_len;
    frame->body_bytes = (uint32_t)parts[2].iov_len;
    if (packet->slot_bytes) {
        frame->has_body = 1;
        frame->body_bytes = packet->slot_bytes;
    }
    return parts[0].iov_len + parts[1].iov_len + parts[2].iov_len;
}

void inlay_channel_give(const carrier_t *carrier, channel_t *channel, packet_t *packet)
{
    channel_frame_t frame;
    struct iovec parts[PARTS];
    channel->waiting += lay_out(carrier, packet, &frame, parts);
    packet->next = NULL;
    *channel->end = packet;
    channel->end = &packet->next;
    inlay_channel_send(carrier, channel);
}

void inlay_channel_send(const carrier_t *carrier, channel_t *channel)
{
    while (channel->first) {
        packet_t *packet = channel->first;
        channel_frame_t frame;
        struct iovec parts[PARTS];
        struct msghdr message;
        const size_t size = lay_out(carrier, packet, &frame, parts);
        ssize_t taken;
        memset(&message, 0, sizeof message);
        message.msg_iov = parts;
        message.msg_iovlen = (size_t)parts_from(channel->sent, parts);
        do taken = sendmsg(channel->file, &message, QUIETLY | MSG_DONTWAIT);
        while (taken < 0 && errno == EINTR);
        if (taken < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) drop_waiting(carrier, channel);
            return;
        }
        channel->sent += (size_t)taken;
        if (channel->sent < size) continue;
        channel->first = packet->next;
        if (!channel->first) channel->end = &channel->first;
        channel->waiting -= size;
        channel->sent = 0;
        inlay_packet_drop(carrier, packet);
    }
}

/* Make room for a message whose frame is there; false where it makes no sense or there is no memory. */
static int prepare(const carrier_t *carrier, channel_t *channel)
{
    const channel_frame_t *f = &channel->frame;
    packet_t *packet = &channel->coming;
    memset(packet, 0, sizeof *packet);
    carrier->zmq.empty(&packet->head);
    if (f->head_bytes > WIRE_MOST_HEAD || f->body_bytes > WIRE_CHUNK || f->has_body > 1 ||
        carrier->zmq.sized(&packet->head, f->head_bytes) != 0)
        return 0;
    if (!f->has_body) return !f->body_bytes;
    packet->has_body = carrier->zmq.sized(&packet->body, f->body_bytes) == 0;
    if (packet->has_body && f->slot != CHANNEL_NO_SLOT) {
        if (f->slot > channel->slots) return 0;
        memcpy(carrier->zmq.data(&packet->body), place(channel->memory, f->slot), f->body_bytes);
    }
    return packet->has_body;
}

int inlay_channel_next(const carrier_t *carrier, channel_t *channel, packet_t *packet)
{
    for (;;) {
        struct iovec parts[PARTS];
        channel_frame_t frame;
        ssize_t came;
        size_t size = sizeof frame;
        int n = 1;
        parts[0].iov_base = (uint8_t *)&channel->frame + channel->got;
        parts[0].iov_len = sizeof frame - channel->got;
        if (channel->got >= sizeof frame) {
            size = lay_out(carrier, &channel->coming, &frame, parts);
            if (channel->frame.slot != CHANNEL_NO_SLOT) {
                size -= parts[2].iov_len;
                parts[2].iov_len = 0;
            }
            n = parts_from(channel->got, parts);
        }
        if (n && channel->got < size) {
            do came = readv(channel->file, parts, n);
            while (came < 0 && errno == EINTR);
            if (came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
            if (came <= 0) return -1;
            channel->got += (size_t)came;
            if (channel->got == sizeof frame && size == sizeof frame && !prepare(carrier, channel))
                return -1;
            continue;
        }
        *packet = channel->coming;
        channel->got = 0;
        return 1;
    }
}

/* -------------------------------------------------------------------------------- of the process */

void inlay_channel_join(line_t *line, const int *files)
{
    struct stat facts;
    line->file = files[0];
    line->memory = NULL;
    line->slots = 0;
    fcntl(files[0], F_SETFD, FD_CLOEXEC);
    if (files[1] < 0 || fstat(files[1], &facts) != 0) return;
    line->memory = map_memory(files[1], (size_t)facts.st_size);
    line->slots = line->memory ? (uint32_t)((size_t)facts.st_size / WIRE_CHUNK) : 0;
    close(files[1]);
}

void inlay_channel_leave(line_t *line)
{
    if (line->memory) munmap(line->memory, (size_t)line->slots * WIRE_CHUNK);
    close(line->file);
}

uint8_t *inlay_channel_slot(const line_t *line, uint32_t slot) { return place(line->memory, slot); }

int inlay_channel_say(const line_t *line, const wire_writer_t *head, const void *body,
                      size_t body_bytes, uint32_t slot)
{
    const size_t inline_bytes = slot == CHANNEL_NO_SLOT ? body_bytes : 0;
    channel_frame_t frame;
    struct iovec parts[PARTS];
    const size_t size = sizeof frame + head->used + inline_bytes;
    size_t sent = 0;
    frame.head_bytes = (uint32_t)head->used;
    frame.body_bytes = (uint32_t)body_bytes;
    frame.has_body = body != NULL;
    frame.slot = slot;
    while (sent < size) {
        struct msghdr message;
        ssize_t taken;
        memset(parts, 0, sizeof parts);
        parts[0].iov_base = &frame;
        parts[0].iov_len = sizeof frame;
        parts[1].iov_base = (void *)(uintptr_t)head->bytes;
        parts[1].iov_len = head->used;
        parts[2].iov_base = (void *)(uintptr_t)body;
        parts[2].iov_len = inline_bytes;
        memset(&message, 0, sizeof message);
        message.msg_iov = parts;
        message.msg_iovlen = (size_t)parts_from(sent, parts);
        taken = sendmsg(line->file, &message, QUIETLY);
        if (taken < 0 && errno != EINTR) return 0;
        if (taken > 0) sent += (size_t)taken;
    }
    return 1;
}

static int fill(int file, void *to, size_t bytes)
{
    uint8_t *at = to;
    while (bytes) {
        const ssize_t came = read(file, at, bytes);
        if (came == 0 || (came < 0 && errno != EINTR)) return 0;
        if (came < 0) continue;
        at += came;
        bytes -= (size_t)came;
    }
    return 1;
}

int inlay_channel_hear(const carrier_t *carrier, const line_t *line, parcel_t *parcel)
{
    channel_frame_t frame;
    parcel->body = NULL;
    parcel->body_bytes = 0;
    if (!fill(line->file, &frame, sizeof frame) || frame.head_bytes > sizeof parcel->head ||
        frame.body_bytes > WIRE_MOST_BODY || frame.slot > line->slots ||
        !fill(line->file, parcel->head, frame.head_bytes))
        return 0;
    parcel->head_bytes = frame.head_bytes;
    parcel->has_body = frame.has_body != 0;
    parcel->slot = frame.slot;
    if (!frame.has_body) return 1;
    parcel->body_bytes = frame.body_bytes;
    if (frame.slot) parcel->body = inlay_channel_slot(line, frame.slot);
    else parcel->body = carrier->host->allocate(carrier->host->user, frame.body_bytes + 1u, 64);
    return parcel->body && (frame.slot || fill(line->file, parcel->body, frame.body_bytes));
}

void inlay_channel_drop(const carrier_t *carrier, parcel_t *parcel)
{
    if (parcel->body && !parcel->slot)
        carrier->host->release(carrier->host->user, parcel->body, parcel->body_bytes + 1u, 64);
    parcel->body = NULL;
}
