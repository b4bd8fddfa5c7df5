/* A client of a server of devices, as the server sees it: see serve.c. */
#define _POSIX_C_SOURCE 200809L
#include "platform/serve.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* What may lie unread; more is sent by no client that keeps to its window. */
static const size_t ROOM_BEYOND_WINDOW = (size_t)WIRE_MOST_BODY + (1u << 22);

enum { GRACE_MS = 1000, NEWS_MS = 1000 };

/* ------------------------------------------------------------------------------- coming and going */

const char *inlay_client_begin(inlay_server_t *server, const packet_t *hello, uint32_t patience)
{
    const carrier_t *carrier = &server->carrier;
    client_t *made = inlay_take(carrier->host, sizeof *made);
    int files[CHANNEL_FILES], is_begun;
    if (!made) return "it has no memory for another client";
    if (!inlay_channel_open(&made->channel, server->window, files)) {
        inlay_give(carrier->host, made, sizeof *made);
        return "it can open no more files";
    }
    made->id = ++server->last_id;
    is_begun = inlay_spawner_start(&server->spawner, made->id, files);
    inlay_channel_close_files(files);
    if (!is_begun) {
        inlay_channel_close(carrier, &made->channel);
        inlay_give(carrier->host, made, sizeof *made);
        return "it can begin no more processes; start it again";
    }
    made->patience = patience < 100 ? 100 : patience;
    made->name_bytes = hello->to_bytes;
    memcpy(made->name, hello->to, hello->to_bytes);
    made->heard = made->used = inlay_clock_ms();
    made->next = server->clients;
    server->clients = made;
    server->n_clients++;
    return NULL;
}

void inlay_client_forget(inlay_server_t *server, client_t *client)
{
    client_t **at = &server->clients;
    while (*at != client) at = &(*at)->next;
    *at = client->next;
    server->n_clients--;
    inlay_channel_close(&server->carrier, &client->channel); /* so its process ends */
    inlay_watch_clear(&server->carrier, &client->watch);
    client->parted = inlay_clock_ms();
    client->next = server->leaving;
    server->leaving = client;
}

/* Tell a client why it is served no more, and forget it. */
static void part(inlay_server_t *server, client_t *client, inlay_status_t status, const char *why)
{
    wire_writer_t w;
    inlay_wire_begin(&w, WIRE_FAILED);
    inlay_wire_u32(&w, (uint32_t)status);
    inlay_wire_text(&w, why);
    inlay_serve_say(server, client->name, client->name_bytes, &w);
    inlay_client_forget(server, client);
}

static void kill_process(inlay_server_t *server, client_t *client)
{
    inlay_spawner_kill(&server->spawner, client->id);
    client->is_killed = 1;
}

/* ---------------------------------------------------------------------------------------- hearing */

/* Return how many bytes go with a message, or with its answer, if that is worth a slot; else 0. */
static size_t worth(const carrier_t *carrier, packet_t *packet)
{
    wire_reader_t r = inlay_packet_read(carrier, packet);
    const size_t head = carrier->zmq.size(&packet->head);
    const uint32_t kind = inlay_wire_read_u32(&r);
    uint64_t bytes = 0;
    if (kind == WIRE_WRITE && packet->has_body) {
        bytes = carrier->zmq.size(&packet->body);
    } else if (kind == WIRE_READ && head > sizeof bytes) {
        r.at = r.end - sizeof bytes; /* its last field */
        bytes = inlay_wire_read_u64(&r);
    }
    return bytes >= CHANNEL_FROM && bytes <= WIRE_CHUNK ? (size_t)bytes : 0;
}

/* Hand a message over, with what is large in a slot. */
static int hand_over(const carrier_t *carrier, client_t *client, packet_t *packet, uint32_t slot)
{
    const zmq_api *zmq = &carrier->zmq;
    packet_t *kept;
    uint32_t bytes = 0;
    if (slot != CHANNEL_NO_SLOT && packet->has_body) {
        bytes = (uint32_t)zmq->size(&packet->body);
        memcpy(client->channel.memory + (size_t)(slot - 1) * WIRE_CHUNK, zmq->data(&packet->body), bytes);
        zmq->drop(&packet->body);
        packet->has_body = 0;
    }
    kept = inlay_packet_keep(carrier, packet);
    if (!kept) return 0;
    kept->slot = slot;
    kept->slot_bytes = bytes;
    inlay_channel_give(carrier, &client->channel, kept);
    return 1;
}

void inlay_client_hear(inlay_server_t *server, client_t *client, packet_t *packet)
{
    const carrier_t *carrier = &server->carrier;
    const int64_t now = inlay_clock_ms();
    const size_t most = 2 * (size_t)server->window + ROOM_BEYOND_WINDOW;
    const size_t body = packet->has_body ? carrier->zmq.size(&packet->body) : 0;
    const uint32_t slot =
        worth(carrier, packet) ? inlay_channel_take_slot(&client->channel) : CHANNEL_NO_SLOT;
    const char *wrong = NULL;
    client->used = now;
    if (carrier->zmq.size(&packet->head) > WIRE_MOST_HEAD ||
        !inlay_watch_sent(carrier, &client->watch, inlay_packet_read(carrier, packet), slot, now))
        wrong = "a message that makes no sense came";
    else if (client->channel.waiting + body > most)
        wrong = "more came than a client may have on its way";
    if (wrong) {
        inlay_packet_clear(carrier, packet);
        part(server, client, INLAY_LOST, wrong);
        return;
    }
    if (!hand_over(carrier, client, packet, slot))
        part(server, client, INLAY_LOST, "it has no memory for a message");
}

/* Pass on what a process says; false where it makes no sense. The client may be forgotten then. */
static int pass_on(inlay_server_t *server, client_t *client, packet_t *packet)
{
    const carrier_t *carrier = &server->carrier;
    wire_reader_t r = inlay_packet_read(carrier, packet);
    const uint32_t kind = inlay_wire_read_u32(&r);
    uint32_t slot;
    if (!inlay_watch_ended(carrier, &client->watch, inlay_packet_read(carrier, packet), &slot,
                           inlay_clock_ms())) {
        inlay_packet_clear(carrier, packet);
        return 0;
    }
    inlay_channel_give_slot(&client->channel, slot); /* its body was copied when it came */
    client->used = inlay_clock_ms();
    packet->to_bytes = client->name_bytes;
    memcpy(packet->to, client->name, client->name_bytes);
    if (!inlay_packet_send(carrier, server->socket, packet) || kind == WIRE_REFUSED ||
        kind == WIRE_FAILED)
        inlay_client_forget(server, client);
    return 1;
}

void inlay_client_hear_process(inlay_server_t *server, client_t *client)
{
    packet_t packet;
    while (client->channel.file >= 0) {
        const int came = inlay_channel_next(&server->carrier, &client->channel, &packet);
        if (!came) return;
        if (came > 0 && pass_on(server, client, &packet)) continue;
        if (came > 0) kill_process(server, client);
        /* Why it hung up is known when it has ended. */
        inlay_channel_close(&server->carrier, &client->channel);
        if (!client->parted) client->parted = inlay_clock_ms();
    }
}

/* ------------------------------------------------------------------------------------------ ending */

static void say_end(int status, char *text, size_t bytes)
{
    if (WIFSIGNALED(status))
        snprintf(text, bytes,
                 "the process that served this client was ended by signal %d (%s), maybe by a kernel "
                 "of it; others are served on",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, bytes, "the process that served this client ended, with status %d; others are "
                 "served on", WIFEXITED(status) ? WEXITSTATUS(status) : status);
}

void inlay_client_bury(inlay_server_t *server, const spawner_report_t *report)
{
    client_t **at = &server->leaving, *client = server->clients;
    char text[256];
    while (client && client->id != report->id) client = client->next;
    if (client) inlay_client_hear_process(server, client); /* its last words, which may be why */
    client = server->clients;
    while (client && client->id != report->id) client = client->next;
    if (client) {
        say_end(report->status, text, sizeof text);
        part(server, client, INLAY_LOST,
             report->status == -1 ? "the system gives it no more processes" : text);
    }
    while (*at && (*at)->id != report->id) at = &(*at)->next;
    client = *at;
    if (!client) return;
    *at = client->next;
    inlay_give(server->carrier.host, client, sizeof *client);
}

/* Return why a client is served no more, with a status; NULL where it is. */
static const char *look(const inlay_server_t *server, const client_t *client, int64_t now,
                        inlay_status_t *status, char *text, size_t bytes)
{
    const int64_t oldest = inlay_watch_oldest(&client->watch);
    *status = INLAY_LOST;
    if (client->parted)
        return now - client->parted > NEWS_MS ? "the process that served this client is lost" : NULL;
    *status = INLAY_LIMIT;
    if (server->most_ms && oldest != INT64_MAX && now - oldest > server->most_ms) {
        snprintf(text, bytes,
                 "what was asked for takes longer than %ld s, which is all that the server allows "
                 "(inlay serve --seconds)",
                 (long)(server->most_ms / 1000));
        return text;
    }
    if (server->idle_ms && oldest == INT64_MAX && !client->watch.in_flight &&
        now - client->used > server->idle_ms) {
        snprintf(text, bytes,
                 "nothing was asked for in %ld s, after which the server gives a place back (inlay serve "
                 "--idle)",
                 (long)(server->idle_ms / 1000));
        return text;
    }
    return NULL;
}

void inlay_client_look_at_all(inlay_server_t *server)
{
    const int64_t now = inlay_clock_ms();
    client_t *client = server->clients, *next;
    for (; client; client = next) {
        inlay_status_t status;
        char text[256];
        const char *why = look(server, client, now, &status, text, sizeof text);
        next = client->next;
        if (why) {
            if (client->parted || client->watch.in_flight || client->watch.calls)
                kill_process(server, client);
            part(server, client, status, why);
        } else if (now - client->heard > client->patience) {
            inlay_client_forget(server, client);
        }
    }
    for (client = server->leaving; client; client = client->next)
        if (!client->is_killed && (now - client->parted > GRACE_MS)) kill_process(server, client);
}
