/* Messages of a server to a client, and of the process of a client to the server: see serve.c. */
#define _POSIX_C_SOURCE 200809L
#include "platform/serve.h"

void inlay_serve_say(inlay_server_t *server, const uint8_t *to, uint32_t to_bytes,
                     const wire_writer_t *w)
{
    packet_t packet;
    if (!inlay_packet_fill(&server->carrier, &packet, w)) return;
    packet.to_bytes = to_bytes;
    memcpy(packet.to, to, to_bytes);
    (void)inlay_packet_send(&server->carrier, server->socket, &packet); /* if it is still there */
}

void inlay_session_say(session_t *session, const wire_writer_t *head, const void *body, size_t bytes,
                       uint32_t slot)
{
    pthread_mutex_lock(&session->speaking);
    /* Where nobody listens, the channel ends for who hears as well. */
    (void)inlay_channel_say(&session->line, head, body, bytes, slot);
    pthread_mutex_unlock(&session->speaking);
}
