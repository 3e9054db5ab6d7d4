/* Shifts the wall clock of one process by the seconds written in the file CLOCK_SHIFT names.
   The monotonic clock is left alone, as the system does when an administrator sets the time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {
  const char *path = getenv("CLOCK_SHIFT");
  long seconds = 0;
  FILE *file = path ? fopen(path, "r") : NULL;
  if (file) {
    if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
    fclose(file);
  }
  return seconds;
}

int clock_gettime(clockid_t id, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(id, now);
  if (!result && id == CLOCK_REALTIME) now->tv_sec += shift();
  return result;
}

int gettimeofday(struct timeval *now, void *zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
  int result = real(now, zone);
  if (!result) now->tv_sec += shift();
  return result;
}

time_t time(time_t *out) {
  static time_t (*real)(time_t *);
  if (!real) real = dlsym(RTLD_NEXT, "time");
  time_t now = real(NULL) + shift();
  if (out) *out = now;
  return now;
}
