/* Requests of a remote device, from the answer of the server to `done`: see remote.c. */
#define _POSIX_C_SOURCE 200809L
#include "platform/remote.h"

static void note_failure(inlay_device_t *device, flight_t *f, const ended_t *ended)
{
    const size_t size = strlen(ended->text) + 1;
    if (ended->status == INLAY_OK || f->status != INLAY_OK) return;
    f->status = ended->status;
    f->answer = ended->answer;
    f->text = inlay_take(device->carrier.host, size);
    if (f->text) memcpy(f->text, ended->text, size);
}

/* Return the flight of a chunk that is on its way, NULL where there is none. Under the lock. */
static flight_t *flight_of(inlay_device_t *device, uint32_t queue, uint64_t number)
{
    flight_t *f = queue < WIRE_MOST_QUEUES ? device->lanes[queue].first : NULL;
    uint64_t chunk;
    while (f && f->first + f->chunks <= number) f = f->next;
    if (!f || number < f->first || number >= f->first + f->sent) return NULL;
    chunk = number - f->first;
    return f->is_over[chunk / 8] >> (chunk % 8) & 1 ? NULL : f;
}

static void unlink_flight(lane_t *lane, flight_t *f)
{
    flight_t **at = &lane->first, *before = NULL;
    while (*at != f) {
        before = *at;
        at = &before->next;
    }
    *at = f->next;
    if (lane->last == f) lane->last = before;
    lane->telling = f->number;
}

/* Whether what came with the end of a chunk is what belongs to it. */
static int fits(const carrier_t *carrier, size_t wanted, const packet_t *packet)
{
    return packet->has_body ? carrier->zmq.size(&packet->body) == wanted : wanted == 0;
}

static int64_t within(int64_t least, int64_t most, int64_t value)
{
    return value < least ? least : value > most ? most : value;
}

/* Store when the last chunk of a flight ended and the first began, in time of the host, where all is
 * known that is needed. Copies of bytes of the host begin where they leave and end where they arrive. A
 * queue does one thing at a time, so what was sent early begins when the one before it has ended. What the
 * clocks are wrong by moves a kernel, as little as it must, and does not shorten it. */
static void note_times(inlay_device_t *device, lane_t *lane, const flight_t *f, int64_t over)
{
    const int64_t now = inlay_remote_now(device), lasts = over - f->begun;
    const uint32_t kind = inlay_remote_kind_of(&f->request);
    int64_t skew, *times = f->request.times;
    if (!times || !f->left || !f->begun || !over) return;
    inlay_remote_compare_clocks(device, f->left, f->begun, over, now);
    if (!device->is_compared) return;
    skew = device->skew_least + (device->skew_most - device->skew_least) / 2;
    times[0] = kind == WIRE_WRITE ? f->left : within(f->left, now - lasts, f->begun + skew);
    times[0] = within(times[0], now, lane->busy_until);
    times[1] = kind == WIRE_READ ? now : within(times[0], now, times[0] + lasts);
    if (kind == WIRE_WRITE) times[1] = within(times[0], now, over + skew);
    lane->busy_until = times[1];
}

flight_t *inlay_remote_end_chunk(inlay_device_t *device, const ended_t *ended, packet_t *packet,
                                 int *is_bad)
{
    const carrier_t *carrier = &device->carrier;
    uint64_t chunk;
    size_t bytes, wanted;
    flight_t *f;
    pthread_mutex_lock(&device->lock);
    f = flight_of(device, ended->queue, ended->number);
    pthread_mutex_unlock(&device->lock); /* only this thread takes flights away */
    *is_bad = !f;
    if (!f) return NULL;
    chunk = ended->number - f->first;
    bytes = inlay_remote_chunk_bytes(f, chunk);
    wanted = inlay_remote_kind_of(&f->request) == WIRE_READ && ended->status == INLAY_OK ? bytes : 0;
    *is_bad = !fits(carrier, wanted, packet);
    if (*is_bad) return NULL;
    if (wanted)
        memcpy((uint8_t *)f->request.to.host + (size_t)chunk * WIRE_CHUNK,
               carrier->zmq.data(&packet->body), wanted);
    pthread_mutex_lock(&device->lock);
    f->is_over[chunk / 8] |= (uint8_t)(1u << (chunk % 8));
    if (!chunk) f->begun = ended->begun;
    note_failure(device, f, ended);
    device->bytes_on_the_way -= bytes;
    device->requests_on_the_way--;
    if (++f->ended < f->chunks) {
        f = NULL;
    } else {
        note_times(device, &device->lanes[ended->queue], f, ended->over);
        unlink_flight(&device->lanes[ended->queue], f);
    }
    pthread_mutex_unlock(&device->lock);
    return f;
}

/* Fail everything that has not ended, each queue in order. The sockets are closed. */
void inlay_remote_fail_all(inlay_device_t *device)
{
    ended_t lost;
    uint32_t i;
    memset(&lost, 0, sizeof lost);
    pthread_mutex_lock(&device->lock);
    lost.status = device->lost_status;
    inlay_remote_say_lost(device, lost.text, sizeof lost.text);
    pthread_mutex_unlock(&device->lock);
    for (i = 0; i < WIRE_MOST_QUEUES; i++)
        for (;;) {
            flight_t *f;
            pthread_mutex_lock(&device->lock);
            f = device->lanes[i].first;
            if (f) {
                unlink_flight(&device->lanes[i], f);
                if (f->sent < f->chunks) inlay_remote_let_go(device, &f->request);
                note_failure(device, f, &lost);
            }
            pthread_mutex_unlock(&device->lock);
            if (!f) break;
            inlay_remote_tell(device, f);
        }
}

void inlay_remote_tell(inlay_device_t *device, flight_t *f)
{
    f->request.done(f->request.argument, f->status, f->answer, f->text ? f->text : "");
    pthread_mutex_lock(&device->lock);
    device->in_flight--;
    device->lanes[f->request.queue].telling = 0;
    pthread_cond_broadcast(&device->changed);
    pthread_mutex_unlock(&device->lock);
    if (f->text) inlay_give(device->carrier.host, f->text, strlen(f->text) + 1);
    inlay_give(device->carrier.host, f, f->size);
}
