/* metric_lines.c - the text of samples. See metric_lines.h. */
#include "runtime/control/metric_lines.h"

#include <math.h>

void put_label(FILE *out, const char *key, const char *value, bool first)
{
    fprintf(out, "%s%s=\"", first ? "{" : ",", key);
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"') fputc('\\', out);
        if (*value == '\n')
            fputs("\\n", out);
        else
            fputc(*value, out);
    }
    fputc('"', out);
}

/* The shortest text that gives the number back to 15 digits. */
static void put_value(FILE *out, double value)
{
    if (isnan(value))
        fputs(" NaN\n", out);
    else
        fprintf(out, " %.15g\n", value);
}

void line0(struct page *p, double value)
{
    fputs(p->name, p->out);
    put_value(p->out, value);
}

void line1(struct page *p, const char *key, const char *label, double value)
{
    fputs(p->name, p->out);
    put_label(p->out, key, label, true);
    fputc('}', p->out);
    put_value(p->out, value);
}

void line2(struct page *p, const char *key, const char *label, const char *key2, const char *label2,
           double value)
{
    fputs(p->name, p->out);
    put_label(p->out, key, label, true);
    put_label(p->out, key2, label2, false);
    fputc('}', p->out);
    put_value(p->out, value);
}
