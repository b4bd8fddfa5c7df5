/* The table of drivers of an embedding program. */
#include <string.h>

#include "inlay_driver.h"

const inlay_driver_t *inlay_driver_find(const inlay_drivers_t *drivers, const char *name, size_t bytes)
{
    size_t i;
    for (i = 0; i < drivers->count; i++)
        if (strlen(drivers->at[i]->name) == bytes && memcmp(drivers->at[i]->name, name, bytes) == 0)
            return drivers->at[i];
    return NULL;
}

inlay_status_t inlay_driver_add(inlay_drivers_t *drivers, const inlay_driver_t *driver)
{
    if (inlay_driver_find(drivers, driver->name, strlen(driver->name))) return INLAY_BAD_ARGUMENT;
    if (drivers->count == drivers->most) return INLAY_OUT_OF_MEMORY;
    drivers->at[drivers->count++] = driver;
    return INLAY_OK;
}
