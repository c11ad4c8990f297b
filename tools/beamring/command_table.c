/* command_table.c - see command_table.h. */
#include "tools/beamring/command_table.h"

#include "tools/beamring/commands.h"

#define SET                                                                                                  \
    {                                                                                                        \
        "--set", "KEY=VALUE", "changes a key of the file: --set upchannelize.factor=32", NULL                \
    }

#define RUN_OPTIONS                                                                                          \
    SET, {"--stats", "FILE", "writes statistics to FILE as JSON, every five seconds and at the end", NULL},  \
        {"--quiet", NULL, "prints only warnings and errors", NULL},                                          \
        {"--progress", NULL, "shows the progress line even without a terminal", NULL},                       \
        {"--control", "ADDRESS:PORT", "serves the live page and requests there: 127.0.0.1:8081", NULL},      \
    {                                                                                                        \
        "--log", "text|json", "prints messages as text, or as one JSON object per line", NULL                \
    }

static const struct option run_options[] = {
    RUN_OPTIONS,
    {"--mpi", NULL, "runs as a rank of a job that mpirun or srun started", NULL},
    {"--join", "HOST:PORT", "runs as rank ${RANK} of ${RANKS} without MPI, between GPUs; rank 0 is there",
     NULL},
    {0},
};
static const struct option serve_options[] = {
    RUN_OPTIONS,
    {"--again", "S", "restarts a pipeline that failed, after S seconds", NULL},
    {0},
};
static const struct option status_options[] = {
    {"--json", NULL, "prints the node's JSON document", NULL},
    {"--watch", NULL, "repeats it every second, until Ctrl-C", NULL},
    {"--token-file", "FILE", "file with the token of a node that requires one", NULL},
    {0},
};
static const struct option log_options[] = {
    {"--follow", NULL, "continues with new messages, until Ctrl-C", NULL},
    {"--token-file", "FILE", "file with the token of a node that requires one", NULL},
    {0},
};
static const struct option check_options[] = {
    SET,
    {"--json", NULL, "prints JSON: stages, queues, memory; or the mistakes with their places", NULL},
    {"--ranks", "N", "checks a job of N ranks: each rank, and the rates between them", NULL},
    {0},
};
static const struct option beams_options[] = {
    {"--at", "TIME", "UTC (2026-11-27-20:00:00), time:NS (Unix, in ns), sample:N, or now (default)", NULL},
    {"--json", NULL, "prints JSON: the beams of each stage", NULL},
    SET,
    {0},
};
static const struct option update_options[] = {
    {"--wait", NULL, "waits until the new values apply, and prints the sample", NULL},
    {"--token-file", "FILE", "file with the token of a node that requires one", NULL},
    {0},
};
static const struct option graph_options[] = {
    {"--dot", NULL, "prints input for Graphviz", NULL}, {"--json", NULL, "prints JSON", NULL}, SET, {0}};
static const struct option stages_options[] = {
    {"--markdown", NULL, "prints the page docs/stages.md", NULL},
    {"--json", NULL, "prints JSON: ports and parameters with types, units, ranges and defaults", NULL},
    {0}};
static const struct option info_options[] = {
    {"--beams", NULL, "lists all beams of recordings", NULL},
    {"--json", NULL, "prints the same names and values as JSON", NULL},
    {0}};
static const struct option convert_options[] = {
    {"--to", "dada|kotekan|guppi|chime|vdif", "format of the new recording", NULL},
    {"--stream", "YAML", "facts that the files lack: 'sample_ns: 2560, epoch_ns: 0'", NULL},
    {"--coding", "int4p4chime|int4p4", "coding of the samples", "kotekan"},
    {"--lossy", NULL, "writes even if the format cannot express everything", NULL},
    {"--overwrite", NULL, "replaces an earlier recording of DIRECTORY/PREFIX", NULL},
    {0},
};
static const struct option receive_options[] = {
    {"--directory", "DIR", "records into DIR: received_NNNNNN.dada and document.yaml", NULL},
    {"--overwrite", NULL, "removes an earlier recording from DIR", NULL},
    {"--idle", "S", "ends after S seconds without data", NULL},
    {"--seconds", "S", "ends after S seconds", NULL},
    {"--until-closed", NULL, "ends when the last sender closes its connection", NULL},
    {"--hold", "S", "waits S seconds for missing parts of a block (2)", NULL},
    {"--window", "N", "blocks that are assembled at a time (16)", NULL},
    {"--senders", "N", "number of senders (1)", "frb-node"},
    {"--handshake", "S", "most seconds from a sender's connection to its document (10)", "frb-node"},
    {"--beams", "N", "number of beams", "chime-l0"},
    {"--channels", "N", "number of coarse channels", "chime-l0"},
    {"--epoch-ns", "N", "Unix time of sample 0 in ns", "chime-l0"},
    {"--first-beam", "N", "id of the first beam (0)", "chime-l0"},
    {"--first-channel", "N", "id of the first coarse channel (0)", "chime-l0"},
    {"--nupfreq", "N", "fine channels in a coarse one (16)", "chime-l0"},
    {"--steps", "N", "time steps in a packet (16)", "chime-l0"},
    {"--counts", "N", "base samples in a time step (384)", "chime-l0"},
    {"--interface", "ADDRESS", "address of the interface that joins a multicast group", "chime-l0"},
    {0},
};
static const struct option calibrate_options[] = {
    {"--source", "RA,DEC|sun|moon",
     "ICRS: 83.633,22.014 or 05:34:31.9,+22:00:52; of several, the first that is up", NULL},
    {"--direction", "X,Y", "instead: direction cosines to the north (m) and to the east (n)", NULL},
    {"--azel", "A,E", "instead: azimuth from north over east, and altitude, in degrees", NULL},
    {"--sideband", "upper|lower", "sideband of the stream, if the files do not state it", NULL},
    {"--telescope", "FILE", "positions of the dishes for DADA recordings: any file with `telescope:`", NULL},
    {"--ref-input", "N", "dish whose phase is 0; default: one that is good in most channels", NULL},
    {"--out", "FILE", "HDF5 file for the gains (gains.h5)", NULL},
    {"--overwrite", NULL, "replaces an earlier file of that name", NULL},
    {"--plot", "FILE", "draws amplitudes and phases into FILE (PNG); needs Python with matplotlib", NULL},
    {"--post", "URL", "sends the gains to the node at URL", NULL},
    {"--at", "now|sample:N|time:NS", "from when they apply: a base sample, or Unix time in ns (now)", NULL},
    {"--stages", "NAME:PARAMETER,...", "stages of the node that get them; default: all that take gains",
     NULL},
    {"--token-file", "FILE", "file with the token of a node that requires one", NULL},
    {"--eop", "FILE", "the Earth's orientation (finals2000A.all); default: the telescope's `eop:`", NULL},
    {"--ut1-utc", "S", "UT1 - UTC of the day, for --source (that of a UVH5 file, or 0)", NULL},
    {"--min-snr", "X", "least S/N of a gain; a channel below it has no result (5)", NULL},
    {"--max-residual", "X", "flags inputs whose residual exceeds X times the median (3)", NULL},
    {0},
};
static const struct option recover_options[] = {
    {"--stage", "NAME", "stage whose beams the files hold, if the ledger has several", NULL},
    {"--first-beam", "N", "number of a recording's first beam (0)", NULL},
    {"--ratio", "LOW,HIGH", "limits of the mean of recovered over predicted S/N (0.97,1.03)", NULL},
    {"--plot", "FILE", "draws the ratios into FILE (PNG)", NULL},
    {"--json", NULL, "prints the same numbers as JSON", NULL},
    {0},
};
static const struct option capture_report_options[] = {
    {"--packet", "NAME|FILE", "description of the packets; default: tries all that it knows", NULL},
    {"--seconds", "S", "listens for S seconds (5)", NULL},
    {"--interface", "ADDRESS", "address of the interface that joins a multicast group", NULL},
    {0},
};
static const struct option bench_options[] = {
    {"--only", "PART[,PART]...", "measures only these parts", NULL},
    {"--cpu", NULL, "measures only the CPU", NULL},
    {"--gpu", NULL, "measures only the GPU", NULL},
    {"--missing", "N", "GPU kernels with one sample in N missing", NULL},
    {"--code", "sm_80", "GPU kernels for GPUs other than Hopper", NULL},
    {"--strict", NULL, "exits with 1 if a result misses its requirement", NULL},
    {0},
};
static const struct option help_options[] = {
    {"--man", NULL, "prints the manual page, for man", NULL},
    {"--bash", NULL, "prints the completion, for bash", NULL},
    {"--metrics", NULL, "prints the page docs/metrics.md", NULL},
    {0},
};

const struct command commands[] = {
    {"Pipelines", "run", "FILE", "runs a pipeline; - is the standard input", ARGUMENT_PIPELINE, run_options,
     cmd_run},
    {"Pipelines", "serve", "FILE", "runs it as a node that stays when it ends; SIGHUP restarts it",
     ARGUMENT_PIPELINE, serve_options, cmd_serve},
    {"Pipelines", "check", "FILE", "checks it: shapes, memory and data rates; starts nothing",
     ARGUMENT_PIPELINE, check_options, cmd_check},
    {"Pipelines", "beams", "FILE", "prints where its beams look at a time: azimuth, altitude, RA, Dec",
     ARGUMENT_PIPELINE, beams_options, cmd_beams},
    {"Pipelines", "graph", "FILE", "draws it as text", ARGUMENT_PIPELINE, graph_options, cmd_graph},
    {"Pipelines", "stages", "[NAME]", "lists the stages, or describes one", ARGUMENT_STAGE, stages_options,
     cmd_stages},
    {"Nodes that run", "status", "[URL]", "prints where a node's pipeline is held up, and why", ARGUMENT_NONE,
     status_options, cmd_status},
    {"Nodes that run", "log", "[URL]", "prints a node's last messages", ARGUMENT_NONE, log_options, cmd_log},
    {"Nodes that run", "update", "FILE [URL]", "gives a node's stages new values: {at: now, stages: {...}}",
     ARGUMENT_FILE, update_options, cmd_update},
    {"Recordings and networks", "info", "FILE...",
     "prints what recordings, filterbanks, UVH5, tables and packet descriptions hold", ARGUMENT_FILE,
     info_options, cmd_info},
    {"Recordings and networks", "convert", "IN... DIRECTORY/PREFIX", "writes recordings in another format",
     ARGUMENT_FILE, convert_options, cmd_convert},
    {"Recordings and networks", "receive", "frb-node|chime-l0 ADDRESS",
     "receives FRB beams, counts and records them", ARGUMENT_WIRE, receive_options, cmd_receive},
    {"Recordings and networks", "capture-report", "HOST:PORT...", "prints which packets of F-engines arrive",
     ARGUMENT_NONE, capture_report_options, cmd_capture_report},
    {"Recordings and networks", "recover", "LEDGER FILES...",
     "looks for injected bursts at the ledger's places, and compares their S/N", ARGUMENT_FILE,
     recover_options, cmd_recover},
    {"Recordings and networks", "calibrate", "VIS...",
     "computes gains from visibilities of a source; can send them to a node", ARGUMENT_FILE,
     calibrate_options, cmd_calibrate},
    {"The program", "bench", "", "measures kernels, queues, files and networks, each next to a reference",
     ARGUMENT_NONE, bench_options, cmd_bench},
    {"The program", "help", "[COMMAND]", "prints this list, or the options of a command", ARGUMENT_COMMAND,
     help_options, cmd_help},
    {0},
};
