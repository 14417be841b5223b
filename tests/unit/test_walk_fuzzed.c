/* SPDX-License-Identifier: MIT */
/* What `make fuzz` does to the walker, a little of it and the same in every run: recorded images as they are, and with bytes changed anywhere,
 * in the layout's name and the registers too, through the very function that libFuzzer calls. It aborts past its bounds. */
#include "../fuzz/walk_one.h"
#include "unit.h"

enum {
  MOST = 1 << 18, /* bytes of an image that is fed */
  ROUNDS = 100,   /* for each image */
  CHANGES = 16    /* bytes in each round, at most */
};

static uint64_t seed = 4711;

static uint64_t next_random(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed;
}

/* The image without its compression; 0 when it is too large. */
static size_t unpack(const char *name, uint8_t *bytes) {
  char path[512];
  snprintf(path, sizeof path, IMAGE_FOLDER "/%s", name);
  gzFile file = gzopen(path, "rb");
  assert_non_null(file);
  int len = gzread(file, bytes, MOST);
  gzclose(file);
  return len > 0 && len < MOST ? (size_t)len : 0;
}

static void images_with_bytes_changed(void **state) {
  (void)state;
  uint8_t *bytes = malloc(MOST), *changed = malloc(MOST);
  DIR *folder = opendir(IMAGE_FOLDER);
  assert_true(bytes != NULL && changed != NULL && folder != NULL);
  int whole = 0, walked = 0;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    size_t len = strstr(entry->d_name, ".image") != NULL ? unpack(entry->d_name, bytes) : 0;
    if (len == 0) continue;
    seed = 4711 + len; /* whatever the order of the folder */
    whole += walk_one(bytes, len) == 0;
    for (int round = 0; round < ROUNDS; round++) {
      memcpy(changed, bytes, len);
      for (uint64_t left = next_random() % CHANGES + 1; left > 0; left--)
        changed[next_random() % len] = (uint8_t)next_random();
      bool cut = round % 4 == 0;
      walked += walk_one(changed, cut ? len - next_random() % len : len) == 0;
    }
  }
  closedir(folder);
  free(bytes);
  free(changed);
  image_free(image);
  printf("%d images, %d walked with bytes changed\n", whole, walked);
  assert_true(whole > 100 && walked > ROUNDS / 4 * whole); /* what is no image any more is refused */
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(images_with_bytes_changed)};
UNIT_MAIN(tests)
