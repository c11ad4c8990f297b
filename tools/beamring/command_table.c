/* command_table.c - see command_table.h. */
#include "tools/beamring/command_table.h"

#include "tools/beamring/commands.h"

#define SET                                                                                                  \
    {                                                                                                        \
        "--set", "KEY=VALUE", "sets a key of the file: --set upchannelize.factor=32", NULL                   \
    }

#define RUN_OPTIONS                                                                                          \
    SET,                                                                                                     \
        {"--stats", "FILE", "writes the statistics there as JSON, every five seconds and at the end", NULL}, \
        {"--quiet", NULL, "prints warnings and errors only", NULL},                                          \
        {"--progress", NULL, "shows the progress line although this is not a terminal", NULL},               \
        {"--control", "ADDRESS:PORT", "shows and steers the node there: 127.0.0.1:8081", NULL},              \
    {                                                                                                        \
        "--log", "text|json", "messages as text, or as a JSON object a line", NULL                           \
    }

static const struct option run_options[] = {
    RUN_OPTIONS,
    {"--mpi", NULL, "as one of the ranks of a job of mpirun or srun", NULL},
    {"--join", "HOST:PORT", "as rank ${RANK} of ${RANKS}; rank 0 is there. Without MPI, between GPUs", NULL},
    {0},
};
static const struct option serve_options[] = {
    RUN_OPTIONS,
    {"--again", "S", "starts a pipeline that has failed again, after so many seconds", NULL},
    {0},
};
static const struct option status_options[] = {
    {"--json", NULL, "as the node's own document, one for each look", NULL},
    {"--watch", NULL, "shows it again every second, until Ctrl-C", NULL},
    {"--token-file", "FILE", "holds the token of a node that asks for one", NULL},
    {0},
};
static const struct option log_options[] = {
    {"--follow", NULL, "goes on with new messages, until Ctrl-C", NULL},
    {"--token-file", "FILE", "holds the token of a node that asks for one", NULL},
    {0},
};
static const struct option check_options[] = {
    SET,
    {"--json", NULL, "as JSON: stages, queues, memory; or the mistakes with their places", NULL},
    {"--ranks", "N", "as a job of so many ranks: each of them, and what crosses the network", NULL},
    {0},
};
static const struct option beams_options[] = {
    {"--at", "TIME", "UTC, 2026-11-27-20:00:00; time:NS (Unix time in ns); sample:N; or now (now)", NULL},
    {"--json", NULL, "as JSON: the beams of each stage", NULL},
    SET,
    {0},
};
static const struct option update_options[] = {
    {"--wait", NULL, "waits until it holds, and says since which sample", NULL},
    {"--token-file", "FILE", "holds the token of a node that asks for one", NULL},
    {0},
};
static const struct option graph_options[] = {
    {"--dot", NULL, "for Graphviz", NULL}, {"--json", NULL, "as JSON", NULL}, SET, {0}};
static const struct option stages_options[] = {
    {"--markdown", NULL, "as the page docs/stages.md", NULL},
    {"--json", NULL, "as JSON: ports and parameters with types, units, ranges and defaults", NULL},
    {0}};
static const struct option info_options[] = {{"--beams", NULL, "lists all beams of recordings", NULL},
                                             {"--json", NULL, "as JSON, the same names and values", NULL},
                                             {0}};
static const struct option convert_options[] = {
    {"--to", "dada|kotekan|guppi|chime|vdif", "the format to write", NULL},
    {"--stream", "YAML", "says what the files do not: 'sample_ns: 2560, epoch_ns: 0'", NULL},
    {"--coding", "int4p4chime|int4p4", "of the samples", "kotekan"},
    {"--lossy", NULL, "writes although the format cannot say everything", NULL},
    {"--overwrite", NULL, "replaces an earlier recording of DIRECTORY/PREFIX", NULL},
    {0},
};
static const struct option receive_options[] = {
    {"--directory", "DIR", "records there what comes: received_NNNNNN.dada and document.yaml", NULL},
    {"--overwrite", NULL, "removes an earlier recording from DIR", NULL},
    {"--idle", "S", "ends when nothing has come for so many seconds", NULL},
    {"--seconds", "S", "ends after so many seconds", NULL},
    {"--until-closed", NULL, "ends when the last sender closes its connection", NULL},
    {"--hold", "S", "waits so long for the missing parts of a block (2)", NULL},
    {"--window", "N", "blocks that are put together at a time (16)", NULL},
    {"--senders", "N", "how many senders there are (1)", "frb-node"},
    {"--handshake", "S", "seconds that a sender has to introduce itself (10)", "frb-node"},
    {"--beams", "N", "beams that come", "chime-l0"},
    {"--channels", "N", "coarse channels that come", "chime-l0"},
    {"--epoch-ns", "N", "when sample 0 was, in Unix time", "chime-l0"},
    {"--first-beam", "N", "id of the first beam (0)", "chime-l0"},
    {"--first-channel", "N", "id of the first coarse channel (0)", "chime-l0"},
    {"--nupfreq", "N", "fine channels in a coarse one (16)", "chime-l0"},
    {"--steps", "N", "time steps in a packet (16)", "chime-l0"},
    {"--counts", "N", "base samples in a time step (384)", "chime-l0"},
    {"--interface", "ADDRESS", "of the network card on which a multicast group is joined", "chime-l0"},
    {0},
};
static const struct option calibrate_options[] = {
    {"--source", "RA,DEC|sun|moon",
     "ICRS: 83.633,22.014 or 05:34:31.9,+22:00:52; of several, the first that is up", NULL},
    {"--direction", "X,Y", "instead: direction cosines to the north (m) and to the east (n)", NULL},
    {"--azel", "A,E", "instead: azimuth from north over east, and altitude, in degrees", NULL},
    {"--sideband", "upper|lower", "that the stream held, where the files do not say it", NULL},
    {"--telescope", "FILE", "where the dishes stand, for DADA recordings: any file with `telescope:`", NULL},
    {"--ref-input", "N", "the dish whose phase is 0; default: one that is good in most channels", NULL},
    {"--out", "FILE", "the gains, HDF5 (gains.h5)", NULL},
    {"--overwrite", NULL, "replaces an earlier file of that name", NULL},
    {"--plot", "FILE", "draws amplitudes and phases there (PNG); needs Python with matplotlib", NULL},
    {"--post", "URL", "gives the gains to the node that runs there", NULL},
    {"--at", "now|sample:N|time:NS", "from when on: a base sample, or Unix time in ns (now)", NULL},
    {"--stages", "NAME:PARAMETER,...", "of the node, to which they go; default: all that take gains", NULL},
    {"--token-file", "FILE", "holds the token of a node that asks for one", NULL},
    {"--eop", "FILE", "the Earth's orientation, finals2000A.all; default: the telescope's `eop:`", NULL},
    {"--ut1-utc", "S", "UT1 - UTC of the day, for --source (that of a UVH5 file, or 0)", NULL},
    {"--min-snr", "X", "of a gain; a channel below has no result (5)", NULL},
    {"--max-residual", "X", "of an input, times the median of all; above it is flagged (3)", NULL},
    {0},
};
static const struct option recover_options[] = {
    {"--stage", "NAME", "whose beams the files hold, where the ledger has several stages of beams", NULL},
    {"--first-beam", "N", "the beam that is the first one of a recording (0)", NULL},
    {"--ratio", "LOW,HIGH", "in which the mean of recovered over predicted S/N shall lie (0.97,1.03)", NULL},
    {"--plot", "FILE", "draws the ratios, PNG", NULL},
    {"--json", NULL, "as JSON, the same numbers", NULL},
    {0},
};
static const struct option capture_report_options[] = {
    {"--packet", "NAME|FILE", "the description to explain the packets by; default: all that are known", NULL},
    {"--seconds", "S", "listens for so long (5)", NULL},
    {"--interface", "ADDRESS", "of the network card on which a multicast group is joined", NULL},
    {0},
};
static const struct option bench_options[] = {
    {"--only", "PART[,PART]...", "these parts only", NULL},
    {"--cpu", NULL, "leaves out the GPU", NULL},
    {"--gpu", NULL, "leaves out the CPU", NULL},
    {"--missing", "N", "kernels on the GPU with one sample of N missing", NULL},
    {"--code", "sm_80", "kernels on the GPU as they are where there is no Hopper", NULL},
    {"--strict", NULL, "fails when a result falls short of what is required", NULL},
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
    {"Pipelines", "serve", "FILE", "runs it on a node that stays when it ends; SIGHUP restarts it",
     ARGUMENT_PIPELINE, serve_options, cmd_serve},
    {"Pipelines", "check", "FILE", "checks it: shapes, memory and data rates; starts nothing",
     ARGUMENT_PIPELINE, check_options, cmd_check},
    {"Pipelines", "beams", "FILE", "says where its beams look at a time: azimuth, altitude, RA, Dec",
     ARGUMENT_PIPELINE, beams_options, cmd_beams},
    {"Pipelines", "graph", "FILE", "draws it as text", ARGUMENT_PIPELINE, graph_options, cmd_graph},
    {"Pipelines", "stages", "[NAME]", "lists the stages, or describes one", ARGUMENT_STAGE, stages_options,
     cmd_stages},
    {"Nodes that run", "status", "[URL]", "says where a node's pipeline is held up and why", ARGUMENT_NONE,
     status_options, cmd_status},
    {"Nodes that run", "log", "[URL]", "prints a node's last messages", ARGUMENT_NONE, log_options, cmd_log},
    {"Nodes that run", "update", "FILE [URL]", "gives a node's stages new values: {at: now, stages: {...}}",
     ARGUMENT_FILE, update_options, cmd_update},
    {"Recordings and networks", "info", "FILE...",
     "says what recordings, filterbanks, UVH5, tables and packet descriptions hold", ARGUMENT_FILE,
     info_options, cmd_info},
    {"Recordings and networks", "convert", "IN... DIRECTORY/PREFIX", "writes recordings in another format",
     ARGUMENT_FILE, convert_options, cmd_convert},
    {"Recordings and networks", "receive", "frb-node|chime-l0 ADDRESS",
     "receives FRB beams, records and counts them", ARGUMENT_WIRE, receive_options, cmd_receive},
    {"Recordings and networks", "capture-report", "HOST:PORT...", "says which packets of F-engines come",
     ARGUMENT_NONE, capture_report_options, cmd_capture_report},
    {"Recordings and networks", "recover", "LEDGER FILES...",
     "looks for injected bursts where the ledger has them, and compares their S/N", ARGUMENT_FILE,
     recover_options, cmd_recover},
    {"Recordings and networks", "calibrate", "VIS...",
     "makes gains of the visibilities of a source, and gives them to a node", ARGUMENT_FILE,
     calibrate_options, cmd_calibrate},
    {"The program", "bench", "",
     "measures kernels, queues, files and networks next to what they compare with", ARGUMENT_NONE,
     bench_options, cmd_bench},
    {"The program", "help", "[COMMAND]", "prints this, or a command with its options", ARGUMENT_COMMAND,
     help_options, cmd_help},
    {0},
};
