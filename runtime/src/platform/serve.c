/* A server of devices: see inlay_serve.h, and wire.h for the messages.
 *
 * The thread that runs the server owns the socket, and waits for nothing else. Each client has a
 * *process*, made by a spawner (spawner.c), which works for it in a *session* (serve_session.c) with a
 * device of its own. The server hands messages to and fro (serve_client.c, channel.c) and answers signs of
 * life itself, so a client's long compilation holds up nobody's.
 *
 * Nothing a peer says is believed: heads must be whole, numbers must be known, bodies must have the
 * size they are for, and what a client has in flight is bounded. A client that breaks a rule is told
 * and forgotten; the others notice nothing. What code does that a client loads is its own affair: it may
 * spoil or end its process, which is believed no more than its client is. How long a request takes the
 * server sees in what it hands over (serve_watch.c); memory the session counts. */
#define _POSIX_C_SOURCE 200809L
#include "platform/serve.h"

#include <stdio.h>

enum {
    MOST_CLIENTS = 16,
    END_MS = 5000,
    PROBE_MS = 60000, /* until a device is open: drivers may build things when they are first used */
    MOST_AT_ONCE = 256 /* before answers are sent */
};

static int64_t now_of(const inlay_server_t *server)
{
    const inlay_host_t *host = server->carrier.host;
    return host->now ? host->now(host->user) : 0;
}

inlay_status_t inlay_server_key(const char *path, char *found, size_t found_bytes, int *is_new,
                                char *message, size_t message_bytes)
{
    char place[KEY_PATH];
    const inlay_status_t status = inlay_key_find(path, place, is_new, message, message_bytes);
    if (found_bytes) snprintf(found, found_bytes, "%s", status == INLAY_OK ? place : "");
    return status;
}

/* -------------------------------------------------------------------------------------- opening */

/* Let only those in who have the key; false on failure. */
static int require_key(inlay_server_t *server)
{
    server->authenticator = inlay_authenticator_open(&server->carrier, server->context);
    return server->authenticator &&
           inlay_key_of_server(&server->carrier, server->socket, &server->key);
}

/* Let a process open the device and say how that went. */
static inlay_status_t probe(inlay_server_t *server, char *message, size_t bytes)
{
    inlay_status_t status = INLAY_ABSENT;
    const int64_t end = inlay_clock_ms() + PROBE_MS;
    const char *why = "the system gives no process for a device";
    char text[WIRE_MOST_TEXT + 1];
    spawner_report_t report;
    channel_t channel;
    packet_t packet;
    int files[CHANNEL_FILES], came = 0, is_begun;
    if (!inlay_channel_open(&channel, server->window, files)) return INLAY_OUT_OF_MEMORY;
    is_begun = inlay_spawner_start(&server->spawner, ++server->last_id, files);
    inlay_channel_close_files(files);
    while (is_begun && !came && inlay_clock_ms() < end) {
        came = inlay_channel_next(&server->carrier, &channel, &packet);
        if (!came && inlay_spawner_hear(&server->spawner, &report, 5) != 0)
            came = inlay_channel_next(&server->carrier, &channel, &packet) > 0 ? 1 : -1;
    }
    if (is_begun) why = came ? "its driver ends the process" : "its driver does not answer";
    if (came > 0) {
        wire_reader_t r = inlay_packet_read(&server->carrier, &packet);
        if (inlay_wire_read_u32(&r) == WIRE_WELCOME) {
            status = INLAY_OK;
        } else {
            (void)inlay_wire_read_u64(&r);
            (void)inlay_wire_read_u32(&r);
            status = (inlay_status_t)inlay_wire_read_u32(&r);
            inlay_wire_read_text(&r, text, sizeof text);
            why = text;
        }
        inlay_packet_clear(&server->carrier, &packet);
    }
    if (status != INLAY_OK && bytes) snprintf(message, bytes, "%s", why);
    if (!came) inlay_spawner_kill(&server->spawner, server->last_id);
    inlay_channel_close(&server->carrier, &channel);
    return status;
}

static int listen_at(inlay_server_t *server, const char *endpoint, int has_key)
{
    const zmq_api *zmq = &server->carrier.zmq;
    const int none = 0, one = 1, linger = 200, v6 = strchr(endpoint, '[') != NULL;
    const int64_t most = WIRE_MOST_BODY;
    size_t used = sizeof server->endpoint;
    server->context = zmq->make_context();
    server->socket = server->context ? zmq->make_socket(server->context, ZMQ_ROUTER) : NULL;
    return server->socket && !zmq->set(server->socket, ZMQ_LINGER, &linger, sizeof linger) &&
           !zmq->set(server->socket, ZMQ_SNDHWM, &none, sizeof none) &&
           !zmq->set(server->socket, ZMQ_MAXMSGSIZE, &most, sizeof most) &&
           !zmq->set(server->socket, ZMQ_ROUTER_MANDATORY, &one, sizeof one) &&
           !zmq->set(server->socket, ZMQ_IPV6, &v6, sizeof v6) &&
           (!has_key || require_key(server)) && !zmq->bind(server->socket, endpoint) &&
           !zmq->get(server->socket, ZMQ_LAST_ENDPOINT, server->endpoint, &used);
}

static inlay_status_t set_up(inlay_server_t *server, const inlay_server_config_t *config,
                             char *message, size_t bytes)
{
    const int has_key = !config->key || strcmp(config->key, KEY_NONE) != 0;
    inlay_status_t status;
    /* First, while there is nothing open that its copies should not have. */
    if (!inlay_spawner_open(&server->spawner, inlay_session_run, server)) {
        if (bytes) snprintf(message, bytes, "the system gives no process for clients");
        return INLAY_OUT_OF_MEMORY;
    }
    status = inlay_carrier_open(&server->carrier, server->carrier.host, config->library, message,
                                bytes);
    if (status == INLAY_OK && has_key)
        status = inlay_key_read(&server->carrier, config->key, &server->key, message, bytes);
    if (status == INLAY_OK) status = probe(server, message, bytes);
    if (status != INLAY_OK || listen_at(server, config->endpoint, has_key)) return status;
    if (bytes)
        snprintf(message, bytes, "cannot listen at %s: %s", config->endpoint,
                 server->carrier.zmq.describe(server->carrier.zmq.failure()));
    return INLAY_BAD_ARGUMENT;
}

static void dismantle(inlay_server_t *server)
{
    const zmq_api *zmq = &server->carrier.zmq;
    while (server->leaving) {
        client_t *next = server->leaving->next;
        inlay_give(server->carrier.host, server->leaving, sizeof *next);
        server->leaving = next;
    }
    inlay_spawner_close(&server->spawner);
    if (server->socket) zmq->end_socket(server->socket);
    if (server->authenticator) zmq->end_socket(server->authenticator);
    inlay_carrier_end(&server->carrier, server->context);
    inlay_wakeup_close(server->wakeup);
    if (server->options) inlay_give(server->carrier.host, server->options, server->options_bytes);
    inlay_give(server->carrier.host, server, sizeof *server);
}

/* What a client may have on its way: no more than a quarter of its memory, if it can work with that. */
static uint64_t window_of(uint64_t memory_bytes)
{
    const uint64_t part = memory_bytes / 4;
    if (!memory_bytes || part > WIRE_MOST_WINDOW) return WIRE_MOST_WINDOW;
    return part < WIRE_LEAST_WINDOW ? WIRE_LEAST_WINDOW : part;
}

inlay_status_t inlay_server_open(const inlay_host_t *host, const inlay_server_config_t *config,
                                 inlay_server_t **server, char *message, size_t bytes)
{
    const char *options = config->options ? config->options : "";
    inlay_status_t status = INLAY_OUT_OF_MEMORY;
    inlay_server_t *made;
    carrier_t carrier;
    memset(&carrier, 0, sizeof carrier);
    carrier.host = host;
    made = inlay_take(carrier.host, sizeof *made);
    if (!made) return status;
    made->carrier = carrier;
    made->driver = config->driver;
    made->most_clients = config->most_clients ? config->most_clients : MOST_CLIENTS;
    made->memory_bytes = config->memory_bytes;
    made->window = window_of(config->memory_bytes);
    made->most_ms = (int64_t)config->seconds * 1000;
    made->idle_ms = (int64_t)config->idle_seconds * 1000;
    made->spawner.process = made->spawner.file = -1;
    made->options_bytes = strlen(options) + 1;
    made->options = inlay_take(carrier.host, made->options_bytes);
    if (!made->options || !inlay_wakeup_open(made->wakeup)) {
        if (made->options) inlay_give(carrier.host, made->options, made->options_bytes);
        inlay_give(carrier.host, made, sizeof *made);
        return status;
    }
    memcpy(made->options, options, made->options_bytes);
    status = set_up(made, config, message, bytes);
    if (status == INLAY_OK) *server = made;
    else dismantle(made);
    return status;
}

const char *inlay_server_endpoint(const inlay_server_t *server) { return server->endpoint; }

void inlay_server_stop(inlay_server_t *server)
{
    server->is_stopping = 1;
    inlay_wakeup_signal(server->wakeup);
}

/* ------------------------------------------------------------------------------------- listening */

static client_t *client_of(const inlay_server_t *server, const packet_t *packet)
{
    client_t *c = server->clients;
    while (c && (c->name_bytes != packet->to_bytes ||
                 memcmp(c->name, packet->to, packet->to_bytes) != 0))
        c = c->next;
    return c;
}

static void refuse(inlay_server_t *server, const packet_t *packet, const char *why)
{
    wire_writer_t w;
    inlay_wire_begin(&w, WIRE_REFUSED);
    inlay_wire_u64(&w, WIRE_MAGIC);
    inlay_wire_u32(&w, WIRE_VERSION);
    inlay_wire_u32(&w, INLAY_ABSENT);
    inlay_wire_text(&w, why);
    inlay_serve_say(server, packet->to, packet->to_bytes, &w);
}

/* Of somebody unknown only a greeting is heard. */
static void hear_stranger(inlay_server_t *server, packet_t *packet)
{
    wire_reader_t r = inlay_packet_read(&server->carrier, packet);
    const uint32_t kind = inlay_wire_read_u32(&r);
    const uint64_t magic = inlay_wire_read_u64(&r);
    const uint32_t version = inlay_wire_read_u32(&r);
    const uint32_t patience = inlay_wire_read_u32(&r);
    const char *why = NULL;
    char text[128];
    if (kind != WIRE_HELLO || magic != WIRE_MAGIC) {
        /* No client of ours; or one that was forgotten, which notices the silence. */
    } else if (version != WIRE_VERSION) {
        why = "the versions differ: use the same release of inlay on both sides";
    } else if (!inlay_wire_is_whole(&r) || packet->has_body || !packet->to_bytes) {
        why = "the greeting makes no sense";
    } else if (server->n_clients >= server->most_clients) {
        snprintf(text, sizeof text, "there are %u clients, as many as it takes (inlay serve --clients)",
                 (unsigned)server->n_clients);
        why = text;
    } else {
        why = inlay_client_begin(server, packet, patience);
    }
    if (why) refuse(server, packet, why);
}

/* Give or clear the packet. */
static void hear(inlay_server_t *server, packet_t *packet, int is_bad)
{
    client_t *client = client_of(server, packet);
    wire_reader_t r = inlay_packet_read(&server->carrier, packet);
    const uint32_t kind = inlay_wire_read_u32(&r);
    wire_writer_t w;
    if (client) client->heard = inlay_clock_ms();
    if (!client) {
        hear_stranger(server, packet);
    } else if (is_bad || kind == WIRE_BYE) {
        inlay_client_forget(server, client);
    } else if (kind == WIRE_PING) {
        inlay_wire_begin(&w, WIRE_PONG);
        inlay_wire_i64(&w, now_of(server));
        inlay_serve_say(server, packet->to, packet->to_bytes, &w);
    } else {
        inlay_client_hear(server, client, packet);
        return;
    }
    inlay_packet_clear(&server->carrier, packet);
}

static void hear_clients(inlay_server_t *server)
{
    packet_t packet;
    int is_bad, n = 0;
    while (n++ < MOST_AT_ONCE &&
           inlay_packet_receive(&server->carrier, server->socket, 1, &packet, &is_bad))
        hear(server, &packet, is_bad);
}

static void hear_processes(inlay_server_t *server)
{
    client_t *client = server->clients, *next;
    spawner_report_t report;
    for (; client; client = next) {
        next = client->next;
        if (client->channel.file < 0) continue;
        inlay_channel_send(&server->carrier, &client->channel);
        inlay_client_hear_process(server, client);
    }
    while (inlay_spawner_hear(&server->spawner, &report, 0) > 0) inlay_client_bury(server, &report);
}

/* Sleep until there is something to hear, or some time has passed. */
static void sleep_until_something(inlay_server_t *server, zmq_pollitem *items)
{
    const client_t *client = server->clients;
    int n = 4;
    memset(items, 0, (4 + server->n_clients) * sizeof *items);
    items[0].socket = server->socket;
    items[1].fd = server->wakeup[0];
    items[2].socket = server->authenticator;
    items[3].fd = server->spawner.file;
    items[0].events = items[1].events = items[2].events = items[3].events = ZMQ_POLLIN;
    if (!server->authenticator) items[2] = items[1];
    if (server->spawner.file < 0) items[3] = items[1];
    for (; client; client = client->next) {
        if (client->channel.file < 0) continue;
        items[n].fd = client->channel.file;
        items[n++].events = (short)(ZMQ_POLLIN | (client->channel.first ? ZMQ_POLLOUT : 0));
    }
    server->carrier.zmq.poll(items, n, 100);
    if (items[1].revents) inlay_wakeup_clear(server->wakeup);
}

static void end_processes(inlay_server_t *server)
{
    const int64_t end = inlay_clock_ms() + END_MS;
    spawner_report_t report;
    while (server->clients) inlay_client_forget(server, server->clients);
    while (server->leaving && inlay_clock_ms() < end) {
        const int came = inlay_spawner_hear(&server->spawner, &report, 100);
        if (came < 0) return;
        if (came) inlay_client_bury(server, &report);
        inlay_client_look_at_all(server);
    }
}

void inlay_server_run(inlay_server_t *server)
{
    const size_t bytes = (4 + (size_t)server->most_clients) * sizeof(zmq_pollitem);
    zmq_pollitem *items = inlay_take(server->carrier.host, bytes);
    if (!items) return;
    while (!server->is_stopping) {
        sleep_until_something(server, items);
        if (server->authenticator)
            inlay_authenticator_answer(&server->carrier, server->authenticator, &server->key);
        hear_processes(server);
        hear_clients(server);
        inlay_client_look_at_all(server);
    }
    inlay_give(server->carrier.host, items, bytes);
    end_processes(server);
}

void inlay_server_close(inlay_server_t *server) { dismantle(server); }
