/* Exact mean value analysis of one class, as textbooks print it: the least that a program in C does.
 *
 *     gcc -O2 mva.c -o mva && ./mva CUSTOMERS STATIONS
 *
 * Station k of K has a demand of (1 + k/10) ms, k = 0 … K − 1; nobody thinks. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double solve(int customers, int stations, const double *demand, double *length, double *residence) {
    double throughput = 0.0;
    for (int k = 0; k < stations; k++) length[k] = 0.0;
    for (int n = 1; n <= customers; n++) {
        double total = 0.0;
        for (int k = 0; k < stations; k++) {
            residence[k] = demand[k] * (1.0 + length[k]);
            total += residence[k];
        }
        throughput = n / total;
        for (int k = 0; k < stations; k++) length[k] = throughput * residence[k];
    }
    return throughput;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    int customers = atoi(arguments[1]), stations = atoi(arguments[2]);
    if (customers < 1 || stations < 1 || stations > 10000) return 2;
    double *demand = malloc(3 * stations * sizeof(double));
    if (!demand) return 1;
    for (int k = 0; k < stations; k++) demand[k] = (1.0 + k / 10.0) / 1000.0;
    double answer = solve(customers, stations, demand, demand + stations, demand + 2 * stations);
    long calls = 0;
    double start = now(), seconds;
    do {
        /* The last demand moves by less than its last digit, so that no call can be left out. */
        demand[0] *= 1.0 + (calls % 2 ? 1e-17 : -1e-17);
        answer = solve(customers, stations, demand, demand + stations, demand + 2 * stations);
        calls++;
        seconds = now() - start;
    } while (seconds < 0.05);
    printf("{\"seconds\": %.9g, \"answer\": %.17g, \"version\": \"%s %s\"}\n", seconds / calls, answer,
           "gcc", __VERSION__);
    return 0;
}
