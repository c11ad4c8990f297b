/* Packets that come while a socket is being opened: `bind` of this program sends a bundle to the port before
 * it returns. The kernel's counters count what is in a queue, so that a bundle must be one there, too. */
#include "stages/capture/receiver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum { PACKETS = 8, PACKET = 1000 };

/* Instead of the C library's. */
int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t length)
{
    static const uint8_t bundle[PACKETS * PACKET];
    int status = (int)syscall(SYS_bind, fd, address.__sockaddr__, length), segment = PACKET;
    if (status != 0) return status;
    struct sockaddr_in to;
    socklen_t size = sizeof to;
    int sender = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&to, &size), 0);
    assert_int_equal(setsockopt(sender, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment), 0);
    assert_int_equal(sendto(sender, bundle, sizeof bundle, 0, (struct sockaddr *)&to, size), sizeof bundle);
    close(sender);
    return status;
}

static struct receiver receiver_of_any_port(void)
{
    struct receiver r = {.members = 1, .buffer_bytes = 1 << 20, .fd = -1, .guard = -1};
    struct br_error error = {0};
    assert_int_equal(net_resolve(&r.at, "127.0.0.1:0", SOCK_DGRAM, &error), BR_OK);
    return r;
}

static void test_a_bundle_that_comes_at_once_is_one(void **state)
{
    (void)state;
    struct receiver r = receiver_of_any_port();
    uint8_t *bytes = malloc(65536);
    assert_int_equal(receiver_socket.open(&r, NULL), BR_OK);
    assert_int_equal(recv(r.fd, bytes, 65536, MSG_DONTWAIT), PACKETS * PACKET);
    assert_int_equal(recv(r.fd, bytes, 65536, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    receiver_socket.close(&r);
    free(bytes);
}

static void test_a_guard_takes_nothing(void **state)
{
    (void)state;
    struct receiver r = receiver_of_any_port();
    uint8_t byte;
    int guard = receiver_open_guard(&r, NULL);
    assert_true(guard >= 0);
    assert_int_equal(recv(guard, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    close(guard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bundle_that_comes_at_once_is_one),
        cmocka_unit_test(test_a_guard_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
