/* A server of devices: see inlay_serve.h, and wire.h for the messages.
 *
 * The thread that runs the server owns the socket. It never waits for a device: it hands messages to
 * the *session* of their client, a thread with a device of its own, and sends what sessions and drivers
 * put into the outbox. So a client's long compilation holds up nobody's signs of life.
 *
 * Nothing a peer says is believed: heads must be whole, numbers must be known, bodies must have the
 * size they are for, and what a client has in flight is bounded. A client that breaks a rule is told
 * and forgotten; the others notice nothing. What code does that a client loads is its own affair. */
#define _POSIX_C_SOURCE 200809L
#include "platform/serve.h"

#include <stdio.h>
#include <time.h>

enum { MOST_CLIENTS = 16, SECONDS_TO_END = 5, MOST_AT_ONCE = 256 /* before answers are sent */ };

int64_t inlay_serve_now(const inlay_server_t *server)
{
    const inlay_host_t *host = server->carrier.host;
    return host->now ? host->now(host->user) : 0;
}

void inlay_serve_post(session_t *session, packet_t *packet)
{
    inlay_server_t *server = session->server;
    packet->to_bytes = session->name_bytes;
    memcpy(packet->to, session->name, session->name_bytes);
    pthread_mutex_lock(&server->lock);
    if (!server->outbox) inlay_bell_ring(server->bell);
    *server->outbox_end = packet;
    server->outbox_end = &packet->next;
    pthread_mutex_unlock(&server->lock);
}

/* -------------------------------------------------------------------------------------- opening */

/* Let only those in who have the key; false on failure. */
static int lock_the_door(inlay_server_t *server)
{
    server->door = inlay_door_open(&server->carrier, server->context);
    return server->door && inlay_key_of_server(&server->carrier, server->socket, &server->key);
}

static inlay_status_t set_up(inlay_server_t *server, const inlay_server_config_t *config,
                             char *message, size_t bytes)
{
    const carrier_t *carrier = &server->carrier;
    const zmq_api *zmq = &carrier->zmq;
    const int none = 0, one = 1, linger = 200, v6 = strchr(config->endpoint, '[') != NULL;
    const int64_t most = WIRE_MOST_BODY;
    inlay_device_t *device = NULL;
    size_t used = sizeof server->endpoint;
    inlay_status_t status =
        inlay_carrier_open(&server->carrier, carrier->host, config->library, message, bytes);
    if (status == INLAY_OK && config->key)
        status = inlay_key_read(carrier, config->key, &server->key, message, bytes);
    if (status == INLAY_OK)
        status = server->driver->open(carrier->host, server->options, &device, message, bytes);
    if (status != INLAY_OK) return status;
    server->driver->close(device);
    server->context = zmq->make_context();
    server->socket = server->context ? zmq->make_socket(server->context, ZMQ_ROUTER) : NULL;
    if (server->socket && !zmq->set(server->socket, ZMQ_LINGER, &linger, sizeof linger) &&
        !zmq->set(server->socket, ZMQ_SNDHWM, &none, sizeof none) &&
        !zmq->set(server->socket, ZMQ_MAXMSGSIZE, &most, sizeof most) &&
        !zmq->set(server->socket, ZMQ_ROUTER_MANDATORY, &one, sizeof one) &&
        !zmq->set(server->socket, ZMQ_IPV6, &v6, sizeof v6) &&
        (!config->key || lock_the_door(server)) &&
        !zmq->bind(server->socket, config->endpoint) &&
        !zmq->get(server->socket, ZMQ_LAST_ENDPOINT, server->endpoint, &used))
        return INLAY_OK;
    if (bytes)
        snprintf(message, bytes, "cannot listen at %s: %s", config->endpoint,
                 zmq->describe(zmq->failure()));
    return INLAY_BAD_ARGUMENT;
}

static void dismantle(inlay_server_t *server)
{
    const zmq_api *zmq = &server->carrier.zmq;
    while (server->outbox) {
        packet_t *next = server->outbox->next;
        inlay_packet_drop(&server->carrier, server->outbox);
        server->outbox = next;
    }
    if (server->socket) zmq->end_socket(server->socket);
    if (server->door) zmq->end_socket(server->door);
    inlay_carrier_end(&server->carrier, server->context);
    inlay_bell_close(server->bell);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    if (server->options) inlay_carrier_give(&server->carrier, server->options, server->options_bytes);
    inlay_carrier_give(&server->carrier, server, sizeof *server);
}

inlay_status_t inlay_server_open(const inlay_host_t *host, const inlay_server_config_t *config,
                                 inlay_server_t **server, char *message, size_t bytes)
{
    inlay_status_t status = INLAY_OUT_OF_MEMORY;
    carrier_t carrier;
    inlay_server_t *made;
    memset(&carrier, 0, sizeof carrier);
    carrier.host = host;
    made = inlay_carrier_take(&carrier, sizeof *made);
    if (!made) return status;
    made->carrier = carrier;
    made->driver = config->driver;
    made->most_clients = config->most_clients ? config->most_clients : MOST_CLIENTS;
    made->outbox_end = &made->outbox;
    if (!inlay_bell_open(made->bell)) {
        inlay_carrier_give(&carrier, made, sizeof *made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->options_bytes = strlen(config->options ? config->options : "") + 1;
    made->options = inlay_carrier_take(&carrier, made->options_bytes);
    if (made->options) {
        memcpy(made->options, config->options ? config->options : "", made->options_bytes);
        status = set_up(made, config, message, bytes);
    }
    if (status == INLAY_OK)
        *server = made;
    else
        dismantle(made);
    return status;
}

const char *inlay_server_endpoint(const inlay_server_t *server) { return server->endpoint; }

void inlay_server_stop(inlay_server_t *server)
{
    server->is_stopping = 1;
    inlay_bell_ring(server->bell);
}

/* ------------------------------------------------------------------------------------- listening */

static session_t *session_of(const inlay_server_t *server, const packet_t *packet)
{
    session_t *s = server->sessions;
    while (s && (s->name_bytes != packet->to_bytes ||
                 memcmp(s->name, packet->to, packet->to_bytes) != 0))
        s = s->next;
    return s;
}

static void forget(inlay_server_t *server, session_t *session)
{
    session_t **at = &server->sessions;
    while (*at != session) at = &(*at)->next;
    *at = session->next;
    server->n_sessions--;
    inlay_session_end(session);
}

static void send_to(inlay_server_t *server, const packet_t *packet, const wire_writer_t *w)
{
    packet_t answer;
    if (!inlay_packet_fill(&server->carrier, &answer, w)) return;
    answer.to_bytes = packet->to_bytes;
    memcpy(answer.to, packet->to, packet->to_bytes);
    inlay_packet_send(&server->carrier, server->socket, &answer); /* whether or not it is there */
}

static void refuse(inlay_server_t *server, const packet_t *packet, const char *why)
{
    wire_writer_t w;
    inlay_wire_begin(&w, WIRE_REFUSED);
    inlay_wire_u64(&w, WIRE_MAGIC);
    inlay_wire_u32(&w, WIRE_VERSION);
    inlay_wire_u32(&w, INLAY_ABSENT);
    inlay_wire_text(&w, why);
    send_to(server, packet, &w);
}

/* Of somebody unknown only a greeting is heard. */
static void hear_stranger(inlay_server_t *server, packet_t *packet)
{
    wire_reader_t r = inlay_packet_read(&server->carrier, packet);
    const uint32_t kind = inlay_wire_read_u32(&r);
    const uint64_t magic = inlay_wire_read_u64(&r);
    const uint32_t version = inlay_wire_read_u32(&r);
    const uint32_t patience = inlay_wire_read_u32(&r);
    session_t *session = NULL;
    if (kind != WIRE_HELLO || magic != WIRE_MAGIC) {
        /* No client of ours; or one that was forgotten, which notices the silence. */
    } else if (version != WIRE_VERSION) {
        refuse(server, packet, "the versions differ");
    } else if (!inlay_wire_is_whole(&r) || packet->has_body || !packet->to_bytes) {
        refuse(server, packet, "the greeting makes no sense");
    } else if (server->n_sessions >= server->most_clients) {
        refuse(server, packet, "there are as many clients as it takes");
    } else if (!(session = inlay_session_begin(server, packet, patience))) {
        refuse(server, packet, "it has no memory for another client");
    } else {
        session->heard = inlay_clock_ms();
        session->next = server->sessions;
        server->sessions = session;
        server->n_sessions++;
    }
}

/* Give or clear the packet. */
static void hear(inlay_server_t *server, packet_t *packet, int is_bad)
{
    session_t *session = session_of(server, packet);
    wire_reader_t r = inlay_packet_read(&server->carrier, packet);
    const uint32_t kind = inlay_wire_read_u32(&r);
    wire_writer_t w;
    if (session) session->heard = inlay_clock_ms();
    if (!session) {
        hear_stranger(server, packet);
    } else if (is_bad || kind == WIRE_BYE) {
        forget(server, session);
    } else if (kind == WIRE_PING) {
        inlay_wire_begin(&w, WIRE_PONG);
        inlay_wire_i64(&w, inlay_serve_now(server));
        send_to(server, packet, &w);
    } else {
        inlay_session_give(session, packet);
        return;
    }
    inlay_packet_clear(&server->carrier, packet);
}

static void send_outbox(inlay_server_t *server)
{
    packet_t *packet;
    pthread_mutex_lock(&server->lock);
    packet = server->outbox;
    server->outbox = NULL;
    server->outbox_end = &server->outbox;
    pthread_mutex_unlock(&server->lock);
    while (packet) {
        packet_t *next = packet->next;
        session_t *session = session_of(server, packet);
        packet->next = NULL;
        if (!inlay_packet_send(&server->carrier, server->socket, packet) && session)
            forget(server, session); /* its connection is gone */
        inlay_carrier_give(&server->carrier, packet, sizeof *packet);
        packet = next;
    }
}

static void look_at_sessions(inlay_server_t *server)
{
    const int64_t now = inlay_clock_ms();
    session_t *session = server->sessions;
    while (session) {
        session_t *next = session->next;
        if (now - session->heard > session->patience || inlay_session_has_failed(session))
            forget(server, session);
        session = next;
    }
}

static void wait_for_sessions(inlay_server_t *server)
{
    struct timespec end;
    int answer = 0;
    while (server->sessions) forget(server, server->sessions);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += SECONDS_TO_END;
    pthread_mutex_lock(&server->lock);
    while (server->alive && !answer)
        answer = pthread_cond_timedwait(&server->changed, &server->lock, &end);
    pthread_mutex_unlock(&server->lock);
}

void inlay_server_run(inlay_server_t *server)
{
    while (!server->is_stopping) {
        zmq_pollitem items[3];
        packet_t packet;
        int is_bad, n = 0;
        memset(items, 0, sizeof items);
        items[0].socket = server->socket;
        items[1].fd = server->bell[0];
        items[2].socket = server->door;
        items[0].events = items[1].events = items[2].events = ZMQ_POLLIN;
        server->carrier.zmq.poll(items, server->door ? 3 : 2, 100);
        if (server->door) inlay_door_answer(&server->carrier, server->door, &server->key);
        if (items[1].revents) inlay_bell_hush(server->bell);
        send_outbox(server);
        while (n++ < MOST_AT_ONCE && inlay_packet_receive(&server->carrier, server->socket, 1,
                                                          &packet, &is_bad))
            hear(server, &packet, is_bad);
        look_at_sessions(server);
    }
    wait_for_sessions(server);
}

void inlay_server_close(inlay_server_t *server)
{
    uint32_t alive;
    pthread_mutex_lock(&server->lock);
    alive = server->alive;
    pthread_mutex_unlock(&server->lock);
    if (!alive) dismantle(server); /* else their threads still use it */
}
