/* Keys: who may talk to a server, and what others on the way may read: nothing.
 *
 * ZeroMQ encrypts and authenticates with CURVE (RFC 26): each side has a secret key and proves it by
 * the public one. Here both sides have *one* key, a secret in a file that is copied to both machines:
 * who has it may connect, and is sure to talk to one who has it too. So the public half of the client
 * must be that of the server, which the server is asked about by ZAP (RFC 27): a socket in the same
 * process to which ZeroMQ sends a question for each connection before it lets it in.
 *
 * Where no file is named, the key is that of the user: a file in the home folder, made by whichever side
 * needs it first. So both sides of one user on one machine find the same key without a word. */
#define _POSIX_C_SOURCE 200809L
#include "platform/key.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUESTION_FRAMES = 7, QUESTION_ID = 1, QUESTION_MECHANISM = 5, QUESTION_KEY = 6, LONGEST = 256 };

static inlay_status_t refuse(const char *why, const char *path, char *message, size_t bytes)
{
    if (bytes) snprintf(message, bytes, "%s: %s", path, why);
    return INLAY_BAD_ARGUMENT;
}

/* ------------------------------------------------------------------------------------------ files */

/* Write 32 bytes as text (Z85, ZeroMQ RFC 32): four bytes are five digits to the base 85. */
static void spell(const uint8_t *bytes, char *text)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 ".-:+=^!/*?&<>()[]{}@%$#";
    size_t i, k;
    for (i = 0; i < KEY_BYTES; i += 4) {
        uint32_t word = (uint32_t)bytes[i] << 24 | (uint32_t)bytes[i + 1] << 16 |
                        (uint32_t)bytes[i + 2] << 8 | bytes[i + 3];
        for (k = 5; k--; word /= 85) text[i / 4 * 5 + k] = digits[word % 85];
    }
}

static int draw(uint8_t *bytes)
{
    FILE *file = fopen("/dev/urandom", "rb");
    const size_t size = file ? fread(bytes, 1, KEY_BYTES, file) : 0;
    if (file) fclose(file);
    return size == KEY_BYTES;
}

/* Write a new key into a file that must not be there. */
static int write_key(const char *path)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    uint8_t bytes[KEY_BYTES];
    char text[KEY_TEXT + 1];
    int is_written;
    if (file < 0) return 0;
    is_written = draw(bytes);
    spell(bytes, text);
    text[KEY_TEXT] = '\n';
    is_written = is_written && write(file, text, sizeof text) == (ssize_t)sizeof text;
    return close(file) == 0 && is_written;
}

static inlay_status_t make_key(const char *path, int *is_new, char *message, size_t bytes)
{
    /* Written beside and linked to its name, so that nobody reads half a key, and the first one stays. */
    char beside[KEY_PATH + 32];
    int failure = 0;
    *is_new = 0;
    if (access(path, F_OK) == 0) return INLAY_OK;
    if (strlen(path) >= KEY_PATH) return refuse("the path is too long", path, message, bytes);
    snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    unlink(beside);
    if (write_key(beside) && link(beside, path) == 0)
        *is_new = 1;
    else
        failure = errno ? errno : EIO;
    unlink(beside);
    if (!failure || failure == EEXIST) return INLAY_OK;
    if (bytes) snprintf(message, bytes, "%s: cannot write a key: %s", path, strerror(failure));
    return INLAY_BAD_ARGUMENT;
}

/* Store the path of the key of this user; false where the user has no home. Makes the folders. */
static int path_of_user(char *path, size_t room)
{
    static const char *const parts[] = {"/.config", "/inlay", "/remote.key"};
    const char *home = getenv("HOME");
    const struct passwd *user = home && home[0] == '/' ? NULL : getpwuid(geteuid());
    size_t used, i;
    if (user) home = user->pw_dir;
    if (!home || home[0] != '/' || strlen(home) + 64 > room) return 0;
    used = strlen(home);
    memcpy(path, home, used + 1);
    for (i = 0; i < sizeof parts / sizeof *parts; i++) {
        memcpy(path + used, parts[i], strlen(parts[i]) + 1);
        used += strlen(parts[i]);
        if (i < 2) (void)mkdir(path, S_IRWXU); /* where it fails, so does what comes in it */
    }
    return 1;
}

inlay_status_t inlay_key_find(const char *given, char *path, int *is_new, char *message, size_t bytes)
{
    static const char otherwise[] = "name a file (key=PATH, inlay serve --key PATH), or do without "
                                    "a key (key=none, inlay serve --anyone)";
    char why[KEY_PATH + 128] = "this user has no home folder for a key";
    *is_new = 0;
    if (given) {
        snprintf(path, KEY_PATH, "%s", given);
        return make_key(given, is_new, message, bytes);
    }
    if (path_of_user(path, KEY_PATH) && make_key(path, is_new, why, sizeof why) == INLAY_OK)
        return INLAY_OK;
    if (bytes) snprintf(message, bytes, "%s; %s", why, otherwise);
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
    inlay_status_t status = INLAY_OK;
    uint8_t own[KEY_BYTES];
    struct stat facts;
    FILE *file;
    int is_read, is_new;
    if (!path) status = inlay_key_find(NULL, key->path, &is_new, message, bytes);
    else snprintf(key->path, sizeof key->path, "%s", path);
    if (status != INLAY_OK) return status;
    path = key->path;
    file = fopen(path, "rb");
    if (!file) return refuse("found no key to read here", path, message, bytes);
    is_read = read_line(file, key->own) && fstat(fileno(file), &facts) == 0;
    fclose(file);
    if (!is_read || !carrier->zmq.bytes_of_text(own, key->own))
        return refuse("found no key, needed 40 characters as `inlay serve --key` writes them", path,
                      message, bytes);
    if (facts.st_mode & S_IRWXO)
        return refuse("found a key that all users can read, needed one for its owner: make another, "
                      "or chmod 600 it where nobody did",
                      path, message, bytes);
    if (carrier->zmq.public_of(key->told, key->own) != 0 ||
        !carrier->zmq.bytes_of_text(key->wanted, key->told))
        return refuse("this ZeroMQ library was built without keys (CURVE)", path, message, bytes);
    return INLAY_OK;
}

/* ------------------------------------------------------------------------------------ connections */

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

void *inlay_authenticator_open(const carrier_t *carrier, void *context)
{
    const int none = 0;
    void *socket = carrier->zmq.make_socket(context, ZMQ_REP);
    if (socket && !carrier->zmq.set(socket, ZMQ_LINGER, &none, sizeof none) &&
        !carrier->zmq.bind(socket, "inproc://zeromq.zap.01"))
        return socket;
    if (socket) carrier->zmq.end_socket(socket);
    return NULL;
}

typedef struct frame {
    uint8_t bytes[LONGEST];
    size_t size;
} frame_t;

/* Read a question; false where there is none. Frames beyond those that are known are dropped. */
static int read_question(const zmq_api *zmq, void *socket, frame_t *frames, int *n_frames)
{
    int more = 1;
    for (*n_frames = 0; more; ++*n_frames) {
        frame_t *frame = *n_frames < QUESTION_FRAMES ? &frames[*n_frames] : NULL;
        zmq_msg message;
        zmq->empty(&message);
        if (zmq->receive(&message, socket, ZMQ_DONTWAIT) < 0) {
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

static int say(const zmq_api *zmq, void *socket, const void *bytes, size_t size, int flags)
{
    zmq_msg message;
    if (zmq->sized(&message, size) != 0) return 0;
    if (size) memcpy(zmq->data(&message), bytes, size);
    if (zmq->send(&message, socket, ZMQ_DONTWAIT | flags) >= 0) return 1;
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

void inlay_authenticator_answer(const carrier_t *carrier, void *socket, const inlay_key_t *key)
{
    const zmq_api *zmq = &carrier->zmq;
    frame_t frames[QUESTION_FRAMES];
    int n_frames;
    while (read_question(zmq, socket, frames, &n_frames)) {
        const int is_in = may_come(frames, n_frames, key);
        const frame_t *id = &frames[QUESTION_ID];
        /* version, id, status, text, user, facts; who is not answered stays outside */
        (void)(say(zmq, socket, "1.0", 3, ZMQ_SNDMORE) &&
               say(zmq, socket, id->bytes, n_frames > QUESTION_ID ? id->size : 0, ZMQ_SNDMORE) &&
               say(zmq, socket, is_in ? "200" : "400", 3, ZMQ_SNDMORE) &&
               say(zmq, socket, "", 0, ZMQ_SNDMORE) && say(zmq, socket, "", 0, ZMQ_SNDMORE) &&
               say(zmq, socket, "", 0, 0));
    }
}
