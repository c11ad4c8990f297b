/* Reads documents of the FRB-node protocol with both of our readers and says what they make of them, for a
 * comparison with a reader that is not ours.
 *
 * Standard input: u32 length, so many bytes (the final 0 is not among them), again and again. A line for
 * each: the verdict of the rules, a tab, and then the values of all keys, as "key:v,v,..." with reals in
 * hexadecimal, or "refused: why". */
#include "formats/frb_node/frb_node.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_ints(const char *key, const struct frb_node_ints *list)
{
    printf(" %s:", key);
    for (size_t i = 0; i < list->count; i++) printf("%" PRId64 ",", list->value[i]);
}

static void print_reals(const char *key, const struct frb_node_reals *list)
{
    printf(" %s:", key);
    for (size_t i = 0; i < list->count; i++) printf("%a,", list->value[i]);
}

#define INT(key)   printf(" " #key ":%" PRId64 ",", d->key)
#define REAL(key)  printf(" " #key ":%a,", d->key)
#define INTS(key)  print_ints(#key, &d->key)
#define REALS(key) print_reals(#key, &d->key)

static void print(const struct frb_node_document *d)
{
    INT(version), INTS(zone_nfreq), REALS(zone_freq_edges), INTS(freq_channels), INT(beamset);
    INTS(beam_ids), REALS(beam_positions_x), REALS(beam_positions_y);
    INT(unix_ns_at_seq_0), INT(dt_ns_per_seq), INT(seq_per_frb_time_sample);
    REAL(tel_origin_itrs_lat_deg), REAL(tel_origin_itrs_lon_deg);
    REALS(tel_grid_x_axis), REALS(tel_grid_y_axis), REALS(tel_dish_elev_axis), REALS(tel_dish_vert_axis);
    REAL(tel_dish_coelev_deg), REAL(tel_dish_separation_x_m), REAL(tel_dish_separation_y_m);
    REALS(noise_variance);
}

static void print_refusal(const struct br_error *error)
{
    fputs("refused: ", stdout);
    for (const char *c = error->text; *c != '\0'; c++) putchar(*c >= ' ' && *c <= '~' ? *c : '?');
}

int main(void)
{
    static char text[FRB_NODE_YAML_MAX];
    for (uint32_t length; fread(&length, sizeof length, 1, stdin) == 1;) {
        if (length >= sizeof text || fread(text, 1, length, stdin) != length) return 1;
        text[length] = '\0';
        struct frb_node_document document;
        struct br_error rules = {0}, error = {0};
        if (memchr(text, 0, length) != NULL)
            fputs("refused: a zero", stdout);
        else if (frb_node_rules(text, length + 1, &rules) == BR_OK)
            fputs("good", stdout);
        else
            print_refusal(&rules);
        putchar('\t');
        if (frb_node_parse(&document, text, length, &error) == BR_OK)
            print(&document);
        else
            print_refusal(&error);
        putchar('\n');
        frb_node_free(&document);
    }
    return 0;
}
