/* remote.c - see remote.h. */
#include "tools/beamring/remote.h"

#include "runtime/base/address.h"
#include "runtime/base/plain.h"
#include "tools/beamring/arguments.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_URL "http://127.0.0.1:8081"
enum { TIMEOUT_MS = 5000, ANSWER_MAX = 64 << 20 };

int remote_arguments(int argc, char **argv, const char *repeats, struct remote *remote)
{
    *remote = (struct remote){.url = DEFAULT_URL};
    bool given = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], repeats) == 0) {
            remote->repeat = true;
        } else if (strcmp(argv[i], "--json") == 0 && strcmp(argv[0], "status") == 0) {
            remote->json = true;
        } else if (strcmp(argv[i], "--token-file") == 0) {
            if (i + 1 == argc) {
                fprintf(stderr, "beamring %s: --token-file needs a value\n", argv[0]);
                return 2;
            }
            remote->token_file = argv[++i];
        } else if (strncmp(argv[i], "--token-file=", 13) == 0) {
            remote->token_file = argv[i] + 13;
        } else if (argv[i][0] == '-') {
            return unknown_option(argv[0], argv[i]);
        } else if (given) {
            fprintf(stderr, "beamring %s: two nodes, '%s' and '%s'; expected one\n", argv[0], remote->url,
                    argv[i]);
            return 2;
        } else {
            given = true;
            remote->url = argv[i];
        }
    }
    return 0;
}

struct answer {
    char *text;
    size_t length;
};

static size_t append(char *data, size_t size, size_t count, void *arg)
{
    struct answer *answer = arg;
    size_t bytes = size * count;
    char *longer =
        answer->length + bytes < ANSWER_MAX ? realloc(answer->text, answer->length + bytes + 1) : NULL;
    if (longer == NULL) return 0;
    memcpy(longer + answer->length, data, bytes);
    answer->text = longer;
    answer->length += bytes;
    answer->text[answer->length] = '\0';
    return bytes;
}

/* "node7:8081" will do for "http://node7:8081". */
static void make_url(const struct remote *remote, const char *path, char *url, size_t size)
{
    size_t length = strlen(remote->url);
    if (length > 0 && remote->url[length - 1] == '/') length--;
    snprintf(url, size, "%s%.*s%s", strstr(remote->url, "://") != NULL ? "" : "http://", (int)length,
             remote->url, path);
}

/* `text` is posted; NULL: it is a GET. */
static CURLcode ask(CURL *curl, const char *url, const char *token, const char *text, struct answer *answer,
                    long *code, char *why)
{
    char header[CONTROL_TOKEN_MAX + 40];
    struct curl_slist *headers = NULL;
    if (token[0] != '\0') {
        snprintf(header, sizeof header, "Authorization: Bearer %s", token);
        headers = curl_slist_append(NULL, header);
    }
    if (text != NULL) {
        headers = curl_slist_append(headers, "Content-Type: application/json");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, text);
    }
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    CURLcode status = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, code);
    curl_slist_free_all(headers);
    return status;
}

/* What a node answers is shown on a terminal: \u001b and the like, which JSON writes so, become '?'. */
static void make_plain(char *text)
{
    br_text_plain(text);
    for (char *c = text; (c = strchr(c, '\\')) != NULL && c[1] != '\0';) {
        unsigned code;
        bool control = c[1] == 'b' || c[1] == 'f' || c[1] == 'r';
        if (c[1] == 'u' && sscanf(c + 2, "%4x", &code) == 1)
            control = (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7f && code < 0xa0);
        if (!control) {
            c += 2;
            continue;
        }
        size_t length = c[1] == 'u' ? strnlen(c, 6) : 2;
        c[0] = '?';
        memmove(c + 1, c + length, strlen(c + length) + 1);
        c++;
    }
}

/* The answer, whatever its code; NULL after a message. */
static json_t *request(const struct remote *remote, const char *command, const char *path, const char *text,
                       long *code)
{
    char url[2048], why[CURL_ERROR_SIZE] = "", token[CONTROL_TOKEN_MAX] = "";
    struct answer answer = {0};
    struct br_error error = {0};
    json_error_t mistake;
    *code = 0;
    if (remote->token_file != NULL && control_token_read(remote->token_file, token, &error) != BR_OK) {
        fprintf(stderr, "beamring %s: %s\n", command, error.text);
        return NULL;
    }
    make_url(remote, path, url, sizeof url);
    CURL *curl = curl_easy_init();
    if (curl == NULL) return NULL;
    CURLcode status = ask(curl, url, token, text, &answer, code, why);
    curl_easy_cleanup(curl);
    if (answer.text != NULL) make_plain(answer.text);
    json_t *document = answer.text != NULL ? json_loads(answer.text, 0, &mistake) : NULL;
    if (status != CURLE_OK) {
        fprintf(stderr, "beamring %s: %s: %s\n", command, url,
                why[0] != '\0' ? why : curl_easy_strerror(status));
    } else if (document == NULL) {
        fprintf(stderr,
                "beamring %s: %s: status %ld, and the answer is no JSON; is this a node of beamring?\n",
                command, url, *code);
    }
    free(answer.text);
    if (status == CURLE_OK) return document;
    json_decref(document);
    return NULL;
}

/* The document where the node agreed (200, 202), else NULL after a message. */
static json_t *agreed(const struct remote *remote, const char *command, const char *path, json_t *document,
                      long code)
{
    if (document == NULL || code == 200 || code == 202) return document;
    const char *text = json_string_value(json_object_get(document, "error"));
    fprintf(stderr, "beamring %s: %s%s: status %ld%s%s\n", command, remote->url, path, code,
            text != NULL ? ": " : "", text != NULL ? text : "");
    json_decref(document);
    return NULL;
}

json_t *remote_get(const struct remote *remote, const char *command, const char *path)
{
    long code;
    json_t *document = request(remote, command, path, NULL, &code);
    return agreed(remote, command, path, document, code);
}

json_t *remote_submit(const struct remote *remote, const char *command, const char *path, const json_t *body)
{
    long code;
    char *text = json_dumps(body, JSON_REAL_PRECISION(17));
    json_t *document = text != NULL ? request(remote, command, path, text, &code) : NULL;
    free(text);
    return document != NULL ? agreed(remote, command, path, document, code) : NULL;
}

json_t *remote_post(const struct remote *remote, const char *command, const char *path, const char *text,
                    long *code)
{
    return request(remote, command, path, text, code);
}
