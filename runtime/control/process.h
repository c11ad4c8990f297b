/* process.h - numbers of the process and of the machine's clock. */
#ifndef BEAMRING_RUNTIME_CONTROL_PROCESS_H
#define BEAMRING_RUNTIME_CONTROL_PROCESS_H

/* NaN where the system does not say. */
struct process_numbers {
    double resident_bytes, locked_bytes, open_fds, threads, cpu_s;
    double clock_offset_s, clock_error_s, clock_synchronised;
};

void process_look(struct process_numbers *numbers);

#endif
