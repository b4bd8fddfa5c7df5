/* Keys: who may talk to a server, and what others on the way may read: nothing.
 *
 * ZeroMQ encrypts and authenticates with CURVE (RFC 26): each side has a secret key and proves it by
 * the public one. Here both sides have *one* key, a secret in a file that is copied to both machines:
 * who has it may connect, and is sure to talk to one who has it too. So the public half of the client
 * must be that of the server, which the server is asked about by ZAP (RFC 27): a socket in the same
 * process to which ZeroMQ sends a question for each connection before it lets it in. */
#define _POSIX_C_SOURCE 200809L
#include "platform/key.h"

#include <stdio.h>

enum { QUESTION_FRAMES = 7, QUESTION_ID = 1, QUESTION_MECHANISM = 5, QUESTION_KEY = 6, LONGEST = 256 };

static inlay_status_t refuse(const char *why, const char *path, char *message, size_t bytes)
{
    if (bytes) snprintf(message, bytes, "%s: %s", path, why);
    return INLAY_BAD_ARGUMENT;
}

/* Read the one line of a file; false where it has another length. */
static int read_line(FILE *file, char *line)
{
    char text[KEY_TEXT + 3];
    const size_t size = fread(text, 1, sizeof text, file);
    size_t used = size;
    while (used && (text[used - 1] == '\n' || text[used - 1] == '\r')) used--;
    if (used != KEY_TEXT || size == sizeof text) return 0;
    memcpy(line, text, KEY_TEXT);
    line[KEY_TEXT] = '\0';
    return 1;
}

inlay_status_t inlay_key_read(const carrier_t *carrier, const char *path, inlay_key_t *key,
                              char *message, size_t bytes)
{
    uint8_t own[KEY_BYTES];
    FILE *file = fopen(path, "rb");
    int is_read;
    if (!file) return refuse("found no key to read here", path, message, bytes);
    is_read = read_line(file, key->own);
    fclose(file);
    if (!is_read || !carrier->zmq.bytes_of_text(own, key->own))
        return refuse("found no key, needed 40 characters as `inlay serve --key` writes them", path,
                      message, bytes);
    if (carrier->zmq.public_of(key->told, key->own) != 0 ||
        !carrier->zmq.bytes_of_text(key->wanted, key->told))
        return refuse("this ZeroMQ library was built without keys (CURVE)", path, message, bytes);
    return INLAY_OK;
}

int inlay_key_of_client(const carrier_t *carrier, void *socket, const inlay_key_t *key)
{
    const zmq_api *zmq = &carrier->zmq;
    return !zmq->set(socket, ZMQ_CURVE_SERVERKEY, key->told, sizeof key->told) &&
           !zmq->set(socket, ZMQ_CURVE_PUBLICKEY, key->told, sizeof key->told) &&
           !zmq->set(socket, ZMQ_CURVE_SECRETKEY, key->own, sizeof key->own);
}

int inlay_key_of_server(const carrier_t *carrier, void *socket, const inlay_key_t *key)
{
    const zmq_api *zmq = &carrier->zmq;
    const int one = 1;
    return !zmq->set(socket, ZMQ_CURVE_SERVER, &one, sizeof one) &&
           !zmq->set(socket, ZMQ_CURVE_SECRETKEY, key->own, sizeof key->own);
}

void *inlay_door_open(const carrier_t *carrier, void *context)
{
    const int none = 0;
    void *door = carrier->zmq.make_socket(context, ZMQ_REP);
    if (door && !carrier->zmq.set(door, ZMQ_LINGER, &none, sizeof none) &&
        !carrier->zmq.bind(door, "inproc://zeromq.zap.01"))
        return door;
    if (door) carrier->zmq.end_socket(door);
    return NULL;
}

typedef struct frame {
    uint8_t bytes[LONGEST];
    size_t size;
} frame_t;

/* Read a question; false where there is none. Frames beyond those that are known are dropped. */
static int read_question(const zmq_api *zmq, void *door, frame_t *frames, int *n_frames)
{
    int more = 1;
    for (*n_frames = 0; more; ++*n_frames) {
        frame_t *frame = *n_frames < QUESTION_FRAMES ? &frames[*n_frames] : NULL;
        zmq_msg message;
        zmq->empty(&message);
        if (zmq->receive(&message, door, ZMQ_DONTWAIT) < 0) {
            zmq->drop(&message);
            return 0;
        }
        if (frame) {
            frame->size = zmq->size(&message) < LONGEST ? zmq->size(&message) : LONGEST;
            memcpy(frame->bytes, zmq->data(&message), frame->size);
        }
        more = zmq->more(&message);
        zmq->drop(&message);
    }
    return 1;
}

static int say(const zmq_api *zmq, void *door, const void *bytes, size_t size, int flags)
{
    zmq_msg message;
    if (zmq->sized(&message, size) != 0) return 0;
    if (size) memcpy(zmq->data(&message), bytes, size);
    if (zmq->send(&message, door, ZMQ_DONTWAIT | flags) >= 0) return 1;
    zmq->drop(&message);
    return 0;
}

static int may_come(const frame_t *frames, int n_frames, const inlay_key_t *key)
{
    static const char mechanism[] = "CURVE";
    return n_frames == QUESTION_FRAMES && frames[QUESTION_MECHANISM].size == sizeof mechanism - 1 &&
           memcmp(frames[QUESTION_MECHANISM].bytes, mechanism, sizeof mechanism - 1) == 0 &&
           frames[QUESTION_KEY].size == KEY_BYTES &&
           memcmp(frames[QUESTION_KEY].bytes, key->wanted, KEY_BYTES) == 0;
}

void inlay_door_answer(const carrier_t *carrier, void *door, const inlay_key_t *key)
{
    const zmq_api *zmq = &carrier->zmq;
    frame_t frames[QUESTION_FRAMES];
    int n_frames;
    while (read_question(zmq, door, frames, &n_frames)) {
        const int is_in = may_come(frames, n_frames, key);
        const frame_t *id = &frames[QUESTION_ID];
        /* version, id, status, text, user, facts; who is not answered stays outside */
        (void)(say(zmq, door, "1.0", 3, ZMQ_SNDMORE) &&
               say(zmq, door, id->bytes, n_frames > QUESTION_ID ? id->size : 0, ZMQ_SNDMORE) &&
               say(zmq, door, is_in ? "200" : "400", 3, ZMQ_SNDMORE) &&
               say(zmq, door, "", 0, ZMQ_SNDMORE) && say(zmq, door, "", 0, ZMQ_SNDMORE) &&
               say(zmq, door, "", 0, 0));
    }
}
