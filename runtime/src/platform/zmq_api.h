/* The part of ZeroMQ that remote devices use, found in libzmq 4.2 or newer when a connection is opened:
 * nothing is needed to build or to link. Names and numbers are those of its manual pages. */
#ifndef INLAY_ZMQ_API_H
#define INLAY_ZMQ_API_H

#include <stddef.h>
#include <stdint.h>

enum {
    ZMQ_PAIR = 0,
    ZMQ_REP = 4,
    ZMQ_DEALER = 5,
    ZMQ_ROUTER = 6,

    ZMQ_LINGER = 17,
    ZMQ_RECONNECT_IVL = 18,
    ZMQ_MAXMSGSIZE = 22,
    ZMQ_SNDHWM = 23,
    ZMQ_RCVHWM = 24,
    ZMQ_LAST_ENDPOINT = 32,
    ZMQ_ROUTER_MANDATORY = 33,
    ZMQ_IPV6 = 42,
    ZMQ_CURVE_SERVER = 47,
    ZMQ_CURVE_PUBLICKEY = 48,
    ZMQ_CURVE_SECRETKEY = 49,
    ZMQ_CURVE_SERVERKEY = 50,

    ZMQ_DONTWAIT = 1,
    ZMQ_SNDMORE = 2,
    ZMQ_POLLIN = 1,
    ZMQ_POLLOUT = 2,

    ZMQ_EVENT_CONNECTED = 0x0001,
    ZMQ_EVENT_DISCONNECTED = 0x0200,
    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL = 0x0800,
    ZMQ_EVENT_HANDSHAKE_SUCCEEDED = 0x1000,
    ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL = 0x2000,
    ZMQ_EVENT_HANDSHAKE_FAILED_AUTH = 0x4000
};

/* A message; 64 bytes that the library fills. */
typedef union zmq_msg {
    unsigned char bytes[64];
    void *align;
} zmq_msg;

typedef struct zmq_pollitem {
    void *socket;
    int fd;
    short events, revents;
} zmq_pollitem;

typedef void (*zmq_free)(void *data, void *hint);

/* X(member, symbol, result, parameters): each becomes a member of zmq_api. */
#define INLAY_ZMQ_FUNCTIONS(X)                                                                     \
    X(make_context, "zmq_ctx_new", void *, (void))                                                 \
    X(end_context, "zmq_ctx_term", int, (void *))                                                  \
    X(make_socket, "zmq_socket", void *, (void *, int))                                            \
    X(end_socket, "zmq_close", int, (void *))                                                      \
    X(set, "zmq_setsockopt", int, (void *, int, const void *, size_t))                             \
    X(get, "zmq_getsockopt", int, (void *, int, void *, size_t *))                                 \
    X(bind, "zmq_bind", int, (void *, const char *))                                               \
    X(connect, "zmq_connect", int, (void *, const char *))                                         \
    X(monitor, "zmq_socket_monitor", int, (void *, const char *, int))                             \
    X(poll, "zmq_poll", int, (zmq_pollitem *, int, long))                                          \
    X(empty, "zmq_msg_init", int, (zmq_msg *))                                                     \
    X(sized, "zmq_msg_init_size", int, (zmq_msg *, size_t))                                        \
    X(around, "zmq_msg_init_data", int, (zmq_msg *, void *, size_t, zmq_free, void *))             \
    X(drop, "zmq_msg_close", int, (zmq_msg *))                                                     \
    X(move, "zmq_msg_move", int, (zmq_msg *, zmq_msg *))                                           \
    X(send, "zmq_msg_send", int, (zmq_msg *, void *, int))                                         \
    X(receive, "zmq_msg_recv", int, (zmq_msg *, void *, int))                                      \
    X(data, "zmq_msg_data", void *, (zmq_msg *))                                                   \
    X(size, "zmq_msg_size", size_t, (const zmq_msg *))                                             \
    X(more, "zmq_msg_more", int, (const zmq_msg *))                                                \
    X(public_of, "zmq_curve_public", int, (char *, const char *))                                  \
    X(bytes_of_text, "zmq_z85_decode", uint8_t *, (uint8_t *, const char *))                       \
    X(failure, "zmq_errno", int, (void))                                                           \
    X(describe, "zmq_strerror", const char *, (int))

typedef struct zmq_api {
#define INLAY_ZMQ_MEMBER(member, symbol, result, parameters) result(*member) parameters;
    INLAY_ZMQ_FUNCTIONS(INLAY_ZMQ_MEMBER)
#undef INLAY_ZMQ_MEMBER
} zmq_api;

#endif
