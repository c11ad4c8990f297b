/* refused.h - plans that cannot be made, and what is said about it. For the C files that include it after
 * cmocka.h. */
#ifndef BEAMRING_TESTS_KERNELS_COMMON_REFUSED_H
#define BEAMRING_TESTS_KERNELS_COMMON_REFUSED_H

#include "kernels/common/kernel.h"

#include <string.h>

/* `status` and `plan`: what a create function returned and left behind; `text` stands in its message. */
static inline void assert_refused(int status, const void *plan, const struct br_why *why, const char *text)
{
    assert_int_equal(status, -1);
    assert_null(plan);
    if (!strstr(why->text, text)) fail_msg("'%s' does not say '%s'", why->text, text);
}

/* BR_CUDA without a br_cuda, or in a library without CUDA. */
static inline void assert_refused_without_device(int status, const void *plan, const struct br_why *why)
{
    assert_refused(status, plan, why, BR_WITH_CUDA ? "br_cuda" : "without CUDA");
}

#endif
