/* The unpacker's output for seeded packets, for tests/oracle/unpack.py. */
#include "tests/kernels/unpack/packets_run.h"

static void one(const char *directory, const struct packets_case *c, enum br_backend backend)
{
    struct packets_run r;
    struct br_unpack *plan;
    struct br_why why;
    packets_make(&r, c);
    const struct br_unpack_params *p = &r.p;
    if (br_unpack_create(&plan, backend, p, &why) != 0) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    br_unpack_execute(plan, r.nblocks, r.in, r.receipt, r.out, r.sums);
    br_unpack_destroy(plan);

    char name[64];
    size_t packets = p->nsources * p->nstreams, samples = r.nblocks * p->packet_samples,
           naxes = strlen(c->axes);
    int64_t numbers[] = {(int64_t)p->nsources,     (int64_t)p->nstreams, (int64_t)p->npositions,
                         (int64_t)c->channel_step, p->offset_binary,     p->real_high,
                         (int64_t)p->sum_samples,  c->missing > 0};
    snprintf(name, sizeof name, "%s_%s", c->name, backend == BR_REFERENCE ? "reference" : "cpu");
    dump_array(directory, name, "axes", "|u1", c->axes, 1, (size_t[]){naxes});
    dump_array(directory, name, "lengths", "<i8", c->length, 1, (size_t[]){naxes});
    dump_array(directory, name, "numbers", "<i8", numbers, 1, (size_t[]){8});
    dump_array(directory, name, "streams", "<i8", r.stream_first, 1, (size_t[]){p->nstreams});
    dump_array(directory, name, "position", "<i4", p->position, 1, (size_t[]){p->ninputs});
    dump_array(directory, name, "in", "|u1", r.in, 3, (size_t[]){r.nblocks, packets, p->packet_bytes});
    dump_array(directory, name, "receipt", "|u1", r.receipt ? r.receipt : r.in, 2,
               (size_t[]){r.receipt ? r.nblocks : 0, p->receipt_bytes});
    dump_array(directory, name, "out", "|u1", r.out, 3, (size_t[]){samples, p->nchannels, p->npositions});
    dump_array(directory, name, "sums", "<u4", r.sums, 4,
               (size_t[]){r.sum_count / (3 * p->nchannels * p->npositions), p->nchannels, 3, p->npositions});
    packets_free(&r);
}

DUMP_MAIN(packets_cases, one)
