/* PDQ's exact solution of one class; the time is that of PDQ_Solve alone.
 *
 *     gcc -O2 -w -I PDQ/lib pdq.c PDQ/lib/{MVA,PDQ}_*.c -lm -o pdq && ./pdq CUSTOMERS STATIONS
 *
 * Station k of K has a demand of (1 + k/10) ms, k = 0 … K − 1; nobody thinks. PDQ takes up to 1,000 customers. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "PDQ_Lib.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    int customers = atoi(arguments[1]), stations = atoi(arguments[2]);
    char name[32];
    PDQ_Init("mva");
    PDQ_CreateClosed("work", BATCH, customers, 0.0);
    for (int k = 0; k < stations; k++) {
        snprintf(name, sizeof name, "s%d", k);
        PDQ_CreateNode(name, CEN, FCFS);
        PDQ_SetDemand(name, "work", (1.0 + k / 10.0) / 1000.0);
    }
    PDQ_Solve(EXACT);
    long calls = 0;
    double start = now(), seconds;
    do {
        PDQ_Solve(EXACT);
        calls++;
        seconds = now() - start;
    } while (seconds < 0.05);
    printf("{\"seconds\": %.9g, \"answer\": %.17g, \"version\": \"PDQ %s\"}\n", seconds / calls,
           PDQ_GetThruput(BATCH, "work"), PDQ_VERSION);
    return 0;
}
