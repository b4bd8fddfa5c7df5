/* Packets and wakeups: see packet.h. A socket of ZeroMQ belongs to one thread; messages do not, so any
 * thread makes packets, puts them into a list under a lock, and wakes that one. */
#define _POSIX_C_SOURCE 200809L
#include "platform/packet.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

inlay_status_t inlay_carrier_open(carrier_t *carrier, const inlay_host_t *host, const char *path,
                                  char *message, size_t bytes)
{
    static const char *const names[] = {"libzmq.so.5", "libzmq.so", "libzmq.5.dylib"};
    size_t i;
    carrier->host = host;
    carrier->library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* NULL is what is loaded already */
    if (!path && carrier->library && !dlsym(carrier->library, "zmq_ctx_new")) {
        dlclose(carrier->library);
        carrier->library = NULL;
    }
    for (i = 0; i < sizeof names / sizeof names[0] && !carrier->library && !path; i++)
        carrier->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!carrier->library) {
        if (bytes && path) snprintf(message, bytes, "found no ZeroMQ library at %s", path);
        if (bytes && !path)
            snprintf(message, bytes,
                     "found no libzmq.so.5; install ZeroMQ (libzmq5, or the Python package pyzmq)");
        return INLAY_ABSENT;
    }
#define INLAY_ZMQ_FIND(member, symbol, result, parameters)                                         \
    {                                                                                              \
        void *found = dlsym(carrier->library, symbol);                                             \
        if (!found) {                                                                              \
            if (bytes) snprintf(message, bytes, "the ZeroMQ library has no " symbol);              \
            return INLAY_ABSENT;                                                                   \
        }                                                                                          \
        memcpy(&carrier->zmq.member, &found, sizeof found);                                        \
    }
    INLAY_ZMQ_FUNCTIONS(INLAY_ZMQ_FIND)
#undef INLAY_ZMQ_FIND
    return INLAY_OK; /* the library stays loaded */
}

void inlay_carrier_end(const carrier_t *carrier, void *context)
{
    while (context && carrier->zmq.end_context(context) != 0 && carrier->zmq.failure() == EINTR)
        continue;
}

int inlay_packet_fill(const carrier_t *carrier, packet_t *packet, const wire_writer_t *head)
{
    memset(packet, 0, sizeof *packet);
    if (carrier->zmq.sized(&packet->head, head->used) != 0) {
        carrier->zmq.empty(&packet->head);
        return 0;
    }
    memcpy(carrier->zmq.data(&packet->head), head->bytes, head->used);
    return 1;
}

void inlay_packet_clear(const carrier_t *carrier, packet_t *packet)
{
    carrier->zmq.drop(&packet->head);
    if (packet->has_body) carrier->zmq.drop(&packet->body);
    packet->has_body = 0;
}

static int send_name(const zmq_api *zmq, void *socket, const packet_t *packet)
{
    zmq_msg to;
    if (zmq->sized(&to, packet->to_bytes) != 0) return 0;
    memcpy(zmq->data(&to), packet->to, packet->to_bytes);
    if (zmq->send(&to, socket, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0) return 1;
    zmq->drop(&to);
    return 0;
}

int inlay_packet_send(const carrier_t *carrier, void *socket, packet_t *packet)
{
    const zmq_api *zmq = &carrier->zmq;
    const int more = packet->has_body ? ZMQ_SNDMORE : 0;
    int sent = !packet->to_bytes || send_name(zmq, socket, packet);
    if (sent) sent = zmq->send(&packet->head, socket, ZMQ_DONTWAIT | more) >= 0;
    if (sent && more) sent = zmq->send(&packet->body, socket, ZMQ_DONTWAIT) >= 0;
    inlay_packet_clear(carrier, packet); /* messages that were sent are empty now */
    return sent;
}

int inlay_packet_receive(const carrier_t *carrier, void *socket, int from, packet_t *packet,
                         int *is_bad)
{
    const zmq_api *zmq = &carrier->zmq;
    int part = from ? 0 : 1, more = 1;
    memset(packet, 0, sizeof *packet);
    *is_bad = 0;
    zmq->empty(&packet->head);
    for (; more; part++) {
        zmq_msg frame;
        zmq->empty(&frame);
        if (zmq->receive(&frame, socket, ZMQ_DONTWAIT) < 0) {
            zmq->drop(&frame);
            inlay_packet_clear(carrier, packet);
            return 0; /* messages come whole, so this is before the first frame */
        }
        more = zmq->more(&frame);
        if (part == 0 && zmq->size(&frame) <= sizeof packet->to) {
            packet->to_bytes = (uint32_t)zmq->size(&frame);
            memcpy(packet->to, zmq->data(&frame), packet->to_bytes);
        } else if (part == 1) {
            zmq->move(&packet->head, &frame);
        } else if (part == 2) {
            zmq->empty(&packet->body);
            zmq->move(&packet->body, &frame);
            packet->has_body = 1;
        } else {
            *is_bad = 1;
        }
        zmq->drop(&frame);
    }
    if (part < 2) *is_bad = 1;
    return 1;
}

packet_t *inlay_packet_keep(const carrier_t *carrier, packet_t *packet)
{
    packet_t *made = inlay_take(carrier->host, sizeof *made);
    if (!made) {
        inlay_packet_clear(carrier, packet);
        return NULL;
    }
    made->to_bytes = packet->to_bytes;
    memcpy(made->to, packet->to, sizeof made->to);
    made->has_body = packet->has_body;
    carrier->zmq.empty(&made->head);
    carrier->zmq.move(&made->head, &packet->head);
    if (made->has_body) {
        carrier->zmq.empty(&made->body);
        carrier->zmq.move(&made->body, &packet->body);
    }
    inlay_packet_clear(carrier, packet);
    return made;
}

packet_t *inlay_packet_of(const carrier_t *carrier, const wire_writer_t *head)
{
    packet_t packet;
    if (!inlay_packet_fill(carrier, &packet, head)) return NULL;
    return inlay_packet_keep(carrier, &packet);
}

void inlay_packet_drop(const carrier_t *carrier, packet_t *packet)
{
    inlay_packet_clear(carrier, packet);
    inlay_give(carrier->host, packet, sizeof *packet);
}

wire_reader_t inlay_packet_read(const carrier_t *carrier, packet_t *packet)
{
    wire_reader_t r;
    r.at = carrier->zmq.data(&packet->head);
    r.end = r.at + carrier->zmq.size(&packet->head);
    r.is_bad = 0;
    return r;
}

int inlay_wakeup_open(int wakeup[2])
{
    int i;
    if (pipe(wakeup) != 0) return 0;
    for (i = 0; i < 2; i++) {
        fcntl(wakeup[i], F_SETFL, fcntl(wakeup[i], F_GETFL) | O_NONBLOCK);
        fcntl(wakeup[i], F_SETFD, FD_CLOEXEC);
    }
    return 1;
}

void inlay_wakeup_close(int wakeup[2])
{
    close(wakeup[0]);
    close(wakeup[1]);
}

void inlay_wakeup_signal(const int wakeup[2])
{
    /* A full pipe will wake its reader as well. */
    if (write(wakeup[1], "", 1) < 0) return;
}

void inlay_wakeup_clear(const int wakeup[2])
{
    char bytes[64];
    while (read(wakeup[0], bytes, sizeof bytes) > 0) continue;
}

int64_t inlay_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
