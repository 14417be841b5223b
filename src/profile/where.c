/* SPDX-License-Identifier: MIT */
/* Choosing samples by labels; see where.h. */
#include "profile/where.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER = 24 };

static const profile_label_t *label_of(const profile_t *p, uint32_t set, const char *key, size_t key_len) {
  profile_label_set_t span = p->label_sets[set];
  for (uint32_t i = 0; i < span.count; i++) {
    const profile_label_t *label = &p->labels[span.first + i];
    text_t text = profile_text(p, label->key);
    if (text.len == key_len && memcmp(text.data, key, key_len) == 0) return label;
  }
  return NULL;
}

static text_t value_of(const profile_t *p, const profile_label_t *label, char number[NUMBER]) {
  if (label->str != 0) return profile_text(p, label->str);
  return (text_t){number, (size_t)snprintf(number, NUMBER, "%" PRId64, label->num)};
}

size_t where_keep(profile_t *p, const char *key, size_t key_len, const char *value) {
  size_t kept = 0, len = strlen(value);
  for (size_t i = 0; i < p->sample_count; i++) {
    char number[NUMBER];
    const profile_label_t *label = label_of(p, p->samples[i].labels, key, key_len);
    if (label == NULL) continue;
    text_t text = value_of(p, label, number);
    if (text.len == len && memcmp(text.data, value, len) == 0) p->samples[kept++] = p->samples[i];
  }
  profile_keep_samples(p, kept);
  return kept;
}

/* Whether "12, 34" has the item. */
static bool has_item(const char *text, size_t len, text_t item) {
  for (size_t at = 0; at + item.len <= len; at++)
    if (memcmp(text + at, item.data, item.len) == 0 && (at == 0 || text[at - 1] == ' ') &&
        (at + item.len == len || text[at + item.len] == ','))
      return true;
  return false;
}

size_t where_values(const profile_t *p, const char *key, size_t key_len, char *text, size_t size) {
  size_t used = 0;
  for (size_t i = 0; i < p->sample_count; i++) {
    char number[NUMBER];
    const profile_label_t *label = label_of(p, p->samples[i].labels, key, key_len);
    if (label == NULL) continue;
    text_t value = value_of(p, label, number);
    if (has_item(text, used, value)) continue;
    if (used + value.len + sizeof ", ..." > size) {
      used += (size_t)snprintf(text + used, size - used, ", ...");
      break;
    }
    used += (size_t)snprintf(text + used, size - used, "%s%.*s", used > 0 ? ", " : "", (int)value.len,
                             value.data);
  }
  return used;
}
