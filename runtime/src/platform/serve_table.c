/* Things that a client of a server knows by number: see serve.c. */
#define _POSIX_C_SOURCE 200809L
#include "platform/serve.h"

uint32_t inlay_table_add(const carrier_t *carrier, table_t *table, void *item)
{
    uint32_t i = 0, room;
    void **items;
    while (i < table->room && table->items[i]) i++;
    if (i == table->room) {
        room = table->room ? table->room * 2 : 64;
        items = inlay_take(carrier->host, room * sizeof *items);
        if (!items) return UINT32_MAX;
        if (table->room) {
            memcpy(items, table->items, table->room * sizeof *items);
            inlay_give(carrier->host, table->items, table->room * sizeof *items);
        }
        table->items = items;
        table->room = room;
    }
    table->items[i] = item;
    return i;
}

void *inlay_table_at(const table_t *table, uint32_t number)
{
    return number < table->room ? table->items[number] : NULL;
}
