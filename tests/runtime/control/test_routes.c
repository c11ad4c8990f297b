/* The table of what the control interface answers. */
#include "runtime/control/parts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A request that changes something is carried out each time: no other request gets its answer. */
static void test_only_what_is_read_is_kept(void **state)
{
    (void)state;
    unsigned kept = 0;
    for (const struct control_route *r = node_routes; r->method != NULL; r++) {
        if (strcmp(r->method, "GET") != 0 && r->fresh_ms != 0)
            fail_msg("%s %s is answered once for several requests", r->method, r->path);
        kept += r->fresh_ms != 0;
    }
    assert_true(kept > 0);
}

static void test_every_route_is_there_once(void **state)
{
    (void)state;
    for (const struct control_route *r = node_routes; r->method != NULL; r++)
        for (const struct control_route *s = r + 1; s->method != NULL; s++)
            if (strcmp(r->method, s->method) == 0 && strcmp(r->path, s->path) == 0)
                fail_msg("%s %s stands in the table twice", r->method, r->path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_what_is_read_is_kept),
                                       cmocka_unit_test(test_every_route_is_there_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
