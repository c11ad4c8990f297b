/* answer.c - what answers are made of; see server.h. */
#include "runtime/control/server.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void answer_clean(char *text)
{
    for (; *text != '\0'; text++)
        if ((*text < ' ' && *text != '\n') || *text > '~') *text = '?';
}

void answer_document(struct control_answer *answer, json_t *document, unsigned digits)
{
    answer->type = "application/json";
    answer->body =
        document != NULL ? json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(digits)) : NULL;
    answer->length = answer->body != NULL ? strlen(answer->body) : 0;
    json_decref(document);
}

void answer_error(struct control_answer *answer, unsigned code, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    answer_clean(text);
    json_t *document = json_pack("{ss}", "error", text);
    answer->code = code;
    answer->type = "application/json";
    answer->body = document != NULL ? json_dumps(document, JSON_INDENT(2)) : NULL;
    answer->length = answer->body != NULL ? strlen(answer->body) : 0;
    json_decref(document);
}
