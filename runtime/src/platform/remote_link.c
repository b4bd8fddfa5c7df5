/* The thread of a connection to a server of devices: see remote.c. */
#define _POSIX_C_SOURCE 200809L
#include "platform/remote.h"

#include <stdarg.h>
#include <stdio.h>

enum { COMPARISONS = 8 };

/* What became of a connection so far. */
typedef struct fate {
    int is_connected; /* somebody listens there */
    int is_let_in;    /* both know each other, by their keys where they have some */
    int is_gone;
    int hung_up;      /* how often the other side did, before it let this one in */
    int is_known;     /* what the next end of a connection is of */
} fate_t;

/* Note why the connection is of no use any more; the first reason stays. Under the lock. */
static void lose(inlay_device_t *device, inlay_status_t status, const char *format, ...)
{
    va_list words;
    if (device->state == LINK_LOST) return;
    device->lost_status =
        device->state == LINK_OPENING || status == INLAY_LIMIT ? status : INLAY_LOST;
    device->state = LINK_LOST;
    va_start(words, format);
    vsnprintf(device->lost, sizeof device->lost, format, words);
    va_end(words);
}

/* ------------------------------------------------------------------------------------- listening */

static void lose_by_version(inlay_device_t *device, uint64_t magic, uint32_t version)
{
    if (magic != WIRE_MAGIC)
        lose(device, INLAY_ABSENT, "who listens there is no server of devices");
    lose(device, INLAY_ABSENT,
         "its server speaks version %u, needed %u: use the same release of inlay on both sides",
         (unsigned)version, (unsigned)WIRE_VERSION);
}

static void hear_welcome(inlay_device_t *device, wire_reader_t *r)
{
    inlay_device_facts_t facts;
    const uint64_t magic = inlay_wire_read_u64(r);
    const uint32_t version = inlay_wire_read_u32(r);
    uint64_t window;
    memset(&facts, 0, sizeof facts);
    if (magic != WIRE_MAGIC || version != WIRE_VERSION) {
        lose_by_version(device, magic, version);
        return;
    }
    inlay_wire_read_text(r, facts.name, sizeof facts.name);
    facts.units = inlay_wire_read_count(r, WIRE_MOST_QUEUES);
    facts.queues_per_unit = inlay_wire_read_count(r, WIRE_MOST_QUEUES);
    facts.memory_bytes = inlay_wire_read_u64(r);
    facts.largest_bytes = inlay_wire_read_u64(r);
    facts.has_f64 = inlay_wire_read_u32(r);
    facts.compute_units = inlay_wire_read_u32(r);
    inlay_wire_read_text(r, facts.offers, sizeof facts.offers);
    window = inlay_wire_read_u64(r);
    if (!inlay_wire_is_whole(r) || window < WIRE_LEAST_WINDOW || !facts.units || facts.queues_per_unit <= INLAY_QUEUE_COPY ||
        facts.units * facts.queues_per_unit > WIRE_MOST_QUEUES || device->state != LINK_OPENING) {
        lose(device, INLAY_ABSENT, "its server welcomes in words that make no sense");
        return;
    }
    device->facts = facts;
    if (device->window > window) device->window = window;
    device->state = LINK_OPEN;
    device->is_compared = 0;
    if (inlay_remote_now(device)) device->to_compare = COMPARISONS;
}

static int hear_pong(inlay_device_t *device, wire_reader_t *r)
{
    const int64_t there = inlay_wire_read_i64(r);
    if (!inlay_wire_is_whole(r)) return 0;
    if (device->to_compare) device->to_compare--;
    if (device->asked && there)
        inlay_remote_compare_clocks(device, device->asked, there, there, inlay_remote_now(device));
    device->asked = 0;
    return 1;
}

static void hear_refusal(inlay_device_t *device, wire_reader_t *r)
{
    char text[400];
    inlay_status_t status;
    const uint64_t magic = inlay_wire_read_u64(r);
    const uint32_t version = inlay_wire_read_u32(r);
    status = (inlay_status_t)inlay_wire_read_u32(r);
    inlay_wire_read_text(r, text, sizeof text);
    if (magic != WIRE_MAGIC || version != WIRE_VERSION)
        lose_by_version(device, magic, version);
    else
        lose(device, status ? status : INLAY_ABSENT, "its server refuses: %s", text);
}

static void hear_failure(inlay_device_t *device, wire_reader_t *r)
{
    char text[400];
    const inlay_status_t status = (inlay_status_t)inlay_wire_read_u32(r);
    inlay_wire_read_text(r, text, sizeof text);
    lose(device, status == INLAY_OK ? INLAY_LOST : status, "its server gives up: %s", text);
}

/* Returns whether the answer belongs to a call. */
static int hear_answer(inlay_device_t *device, wire_reader_t *r)
{
    char text[WIRE_MOST_TEXT + 1];
    const uint32_t number = inlay_wire_read_u32(r);
    const uint32_t status = inlay_wire_read_u32(r);
    const int64_t value = inlay_wire_read_i64(r);
    call_t **at = &device->calls, *call;
    inlay_wire_read_text(r, text, sizeof text);
    while (*at && (*at)->number != number) at = &(*at)->next;
    if (!*at || !inlay_wire_is_whole(r)) return 0;
    call = *at;
    *at = call->next;
    call->status = (inlay_status_t)status;
    call->value = value;
    if (call->message_bytes) snprintf(call->message, call->message_bytes, "%s", text);
    call->is_over = 1;
    return 1;
}

/* Returns whether the end belongs to something that is on its way. Without the lock. */
static int hear_done(inlay_device_t *device, wire_reader_t *r, packet_t *packet)
{
    ended_t ended;
    flight_t *flight;
    int is_bad;
    ended.queue = inlay_wire_read_u32(r);
    ended.number = inlay_wire_read_u64(r);
    ended.status = (inlay_status_t)inlay_wire_read_u32(r);
    ended.answer = inlay_wire_read_i64(r);
    ended.begun = inlay_wire_read_i64(r);
    ended.over = inlay_wire_read_i64(r);
    inlay_wire_read_text(r, ended.text, sizeof ended.text);
    if (!inlay_wire_is_whole(r)) return 0;
    flight = inlay_remote_end_chunk(device, &ended, packet, &is_bad);
    if (flight) inlay_remote_tell(device, flight);
    return !is_bad;
}

static void hear(inlay_device_t *device, packet_t *packet)
{
    wire_reader_t r = inlay_packet_read(&device->carrier, packet);
    const uint32_t kind = inlay_wire_read_u32(&r);
    int makes_sense = 1;
    if (kind == WIRE_DONE && device->state == LINK_OPEN) {
        makes_sense = hear_done(device, &r, packet);
        pthread_mutex_lock(&device->lock);
    } else {
        pthread_mutex_lock(&device->lock);
        if (kind == WIRE_WELCOME) {
            hear_welcome(device, &r);
        } else if (kind == WIRE_REFUSED) {
            hear_refusal(device, &r);
        } else if (kind == WIRE_ANSWER) {
            makes_sense = hear_answer(device, &r);
        } else if (kind == WIRE_FAILED) {
            hear_failure(device, &r);
        } else {
            makes_sense = kind == WIRE_PONG && hear_pong(device, &r);
        }
    }
    if (!makes_sense)
        lose(device, INLAY_ABSENT, "its server answers what was not asked for (message %u)",
             (unsigned)kind);
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
}

static void listen_to_server(inlay_device_t *device)
{
    packet_t packet;
    int is_bad;
    while (device->state != LINK_LOST &&
           inlay_packet_receive(&device->carrier, device->socket, 0, &packet, &is_bad)) {
        device->heard = inlay_clock_ms();
        if (is_bad) {
            pthread_mutex_lock(&device->lock);
            lose(device, INLAY_ABSENT, "its server sends messages of too many parts");
            pthread_mutex_unlock(&device->lock);
        } else {
            hear(device, &packet);
        }
        inlay_packet_clear(&device->carrier, &packet);
    }
}

/* ------------------------------------------------------------------------------------- speaking */

/* Send a message that is a kind and no more. */
static int say(inlay_device_t *device, uint32_t kind)
{
    wire_writer_t w;
    packet_t packet;
    inlay_wire_begin(&w, kind);
    return inlay_packet_fill(&device->carrier, &packet, &w) &&
           inlay_packet_send(&device->carrier, device->socket, &packet);
}

/* Send what may be sent; false where the socket takes no more. Under the lock. */
static int speak(inlay_device_t *device)
{
    const int64_t now = inlay_clock_ms();
    int taken = 1;
    if (device->state == LINK_OPEN &&
        ((device->to_compare && !device->asked) || now - device->spoke >= device->timeout_ms / 4)) {
        device->asked = inlay_remote_now(device);
        taken = say(device, WIRE_PING);
        device->spoke = now;
    }
    while (device->urgent && taken) {
        packet_t *packet = device->urgent;
        device->urgent = packet->next;
        if (!device->urgent) device->urgent_end = &device->urgent;
        packet->next = NULL;
        taken = inlay_packet_send(&device->carrier, device->socket, packet);
        inlay_give(device->carrier.host, packet, sizeof *packet);
        device->spoke = now;
    }
    if (taken && device->state == LINK_OPEN) taken = inlay_remote_send_requests(device);
    return taken;
}

/* Notice silence. Under the lock. */
static void look_at_the_clock(inlay_device_t *device, const fate_t *fate)
{
    const int64_t now = inlay_clock_ms();
    if (device->state == LINK_OPENING && now - device->begun > device->connect_ms &&
        fate->is_connected)
        lose(device, INLAY_ABSENT,
             fate->is_let_in ? "who listens there has not answered within %ld ms: it is busy, or no "
                               "server of devices"
                             : "who listens there has not let this client in within %ld ms: it has "
                               "another key or none, is busy, or is no server of devices",
             (long)device->connect_ms);
    if (device->state == LINK_OPENING && now - device->begun > device->connect_ms)
        lose(device, INLAY_ABSENT, "nothing answers within %ld ms; start a server there: inlay serve",
             (long)device->connect_ms);
    if (device->state == LINK_OPEN && now - device->heard > device->timeout_ms)
        lose(device, INLAY_LOST, "it has not answered for %ld ms", (long)device->timeout_ms);
}

static long milliseconds_to_sleep(const inlay_device_t *device)
{
    const int64_t limit = device->state == LINK_OPENING ? device->connect_ms : device->timeout_ms;
    return (long)(limit / 8 > 0 ? limit / 8 : 1);
}

/* A server that is just ending hangs up as one with another key does. ZeroMQ tries again by itself, and
 * then there is nobody, or it is the key. */
static void note_event(fate_t *fate, uint16_t event)
{
    const int is_end = event != ZMQ_EVENT_CONNECTED && event != ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) fate->is_let_in = 1;
    if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
        fate->is_known = 1;
        if (++fate->hung_up == 2) fate->is_gone = 1;
    } else if (event == ZMQ_EVENT_DISCONNECTED && fate->is_known) {
        fate->is_known = 0;
    } else if (is_end) {
        fate->is_gone = 1;
    }
    fate->is_connected = !is_end;
}

/* Hear what became of the connection, as the monitor tells it. */
static void listen_to_monitor(inlay_device_t *device, fate_t *fate)
{
    packet_t packet;
    int is_bad;
    while (inlay_packet_receive(&device->carrier, device->monitor, 0, &packet, &is_bad)) {
        uint16_t event = 0;
        if (device->carrier.zmq.size(&packet.head) >= sizeof event)
            memcpy(&event, device->carrier.zmq.data(&packet.head), sizeof event);
        inlay_packet_clear(&device->carrier, &packet);
        note_event(fate, event);
    }
}

static void lose_by_fate(inlay_device_t *device, const fate_t *fate)
{
    if (!fate->is_let_in)
        lose(device, INLAY_ABSENT,
             "who listens there has another key or none, or is no server of devices; this side has "
             "%s%s",
             device->key[0] ? "that of " : "none", device->key);
    lose(device, INLAY_LOST, "the connection was closed by the other side");
}

static void sleep_until_something(inlay_device_t *device, long milliseconds)
{
    zmq_pollitem items[3];
    memset(items, 0, sizeof items);
    items[0].socket = device->socket;
    items[1].socket = device->monitor;
    items[2].fd = device->wakeup[0];
    items[0].events = items[1].events = items[2].events = ZMQ_POLLIN;
    if (device->carrier.zmq.poll(items, 3, milliseconds) > 0 && items[2].revents)
        inlay_wakeup_clear(device->wakeup);
}

/* Say goodbye where somebody listens, and end the sockets: then nothing reads the memory of
 * requests any more. */
static void hang_up(inlay_device_t *device)
{
    const zmq_api *zmq = &device->carrier.zmq;
    if (device->state == LINK_OPEN) {
        const int linger = 500;
        zmq->set(device->socket, ZMQ_LINGER, &linger, sizeof linger);
        (void)say(device, WIRE_BYE);
    }
    zmq->end_socket(device->monitor);
    zmq->end_socket(device->socket);
    inlay_carrier_end(&device->carrier, device->context);
    device->monitor = device->socket = device->context = NULL;
}

static void fail_calls(inlay_device_t *device)
{
    call_t *call;
    pthread_mutex_lock(&device->lock);
    for (call = device->calls; call; call = call->next) {
        call->status = device->lost_status;
        inlay_remote_say_lost(device, call->message, call->message_bytes);
        call->is_over = 1;
    }
    device->calls = NULL;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
}

void *inlay_remote_run(void *argument)
{
    inlay_device_t *device = argument;
    fate_t fate = {0, 0, 0, 0, 0};
    int is_over = 0;
    while (!is_over) {
        long milliseconds;
        int taken;
        listen_to_monitor(device, &fate);
        listen_to_server(device); /* what it said before it went comes first */
        pthread_mutex_lock(&device->lock);
        if (fate.is_gone) lose_by_fate(device, &fate);
        look_at_the_clock(device, &fate);
        taken = device->state == LINK_LOST || speak(device);
        if (!taken) {
            /* A connection that ended takes nothing either: then why it ended is the reason. */
            listen_to_monitor(device, &fate);
            if (fate.is_gone) lose_by_fate(device, &fate);
            lose(device, INLAY_OUT_OF_MEMORY, "the connection takes no more messages");
        }
        is_over = device->state == LINK_LOST ||
                  (device->is_closing && !device->in_flight && !device->urgent);
        milliseconds = milliseconds_to_sleep(device);
        pthread_mutex_unlock(&device->lock);
        if (!is_over) sleep_until_something(device, milliseconds);
    }
    hang_up(device);
    if (device->state == LINK_LOST) {
        fail_calls(device);
        inlay_remote_fail_all(device);
    }
    return NULL;
}
