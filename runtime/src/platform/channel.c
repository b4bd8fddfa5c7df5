/* Channels between a server of devices and the processes of its clients: pairs of local sockets.
 *
 * A message is the lengths of its parts, its head and its body, as wire.h has them. Both ends are
 * processes of one program, so lengths are as this machine writes them. The process is believed nothing
 * all the same: what a client runs may have spoiled all that is in it. */
#define _POSIX_C_SOURCE 200809L
#include "platform/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef MSG_NOSIGNAL
enum { QUIETLY = MSG_NOSIGNAL };
#else
enum { QUIETLY = 0 };
#endif

enum { PARTS = 3 };

int inlay_channel_open(channel_t *channel, int *other)
{
    int ends[2];
    memset(channel, 0, sizeof *channel);
    channel->end = &channel->first;
    channel->file = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    fcntl(ends[0], F_SETFL, fcntl(ends[0], F_GETFL) | O_NONBLOCK);
    channel->file = ends[0];
    *other = ends[1];
    return 1;
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
    channel->file = -1;
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
    if (f->head_bytes > WIRE_MOST_HEAD || f->body_bytes > WIRE_PIECE || f->has_body > 1 ||
        carrier->zmq.sized(&packet->head, f->head_bytes) != 0)
        return 0;
    if (!f->has_body) return !f->body_bytes;
    packet->has_body = carrier->zmq.sized(&packet->body, f->body_bytes) == 0;
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

int inlay_channel_say(int file, const wire_writer_t *head, const void *body, size_t body_bytes)
{
    channel_frame_t frame;
    struct iovec parts[PARTS];
    const size_t size = sizeof frame + head->used + body_bytes;
    size_t sent = 0;
    frame.head_bytes = (uint32_t)head->used;
    frame.body_bytes = (uint32_t)body_bytes;
    frame.has_body = body != NULL;
    while (sent < size) {
        struct msghdr message;
        ssize_t taken;
        memset(parts, 0, sizeof parts);
        parts[0].iov_base = &frame;
        parts[0].iov_len = sizeof frame;
        parts[1].iov_base = (void *)(uintptr_t)head->bytes;
        parts[1].iov_len = head->used;
        parts[2].iov_base = (void *)(uintptr_t)body;
        parts[2].iov_len = body_bytes;
        memset(&message, 0, sizeof message);
        message.msg_iov = parts;
        message.msg_iovlen = (size_t)parts_from(sent, parts);
        taken = sendmsg(file, &message, QUIETLY);
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

int inlay_channel_hear(const carrier_t *carrier, int file, parcel_t *parcel)
{
    channel_frame_t frame;
    parcel->body = NULL;
    parcel->body_bytes = 0;
    if (!fill(file, &frame, sizeof frame) || frame.head_bytes > sizeof parcel->head ||
        frame.body_bytes > WIRE_MOST_BODY || !fill(file, parcel->head, frame.head_bytes))
        return 0;
    parcel->head_bytes = frame.head_bytes;
    parcel->has_body = frame.has_body != 0;
    if (!frame.has_body) return 1;
    parcel->body = carrier->host->allocate(carrier->host->user, frame.body_bytes + 1u, 64);
    if (!parcel->body) return 0;
    parcel->body_bytes = frame.body_bytes;
    return fill(file, parcel->body, frame.body_bytes);
}
