/// All jobs that the runtime of this daemon knows, its daemons' own among them.
#pragma once

#include "orte_glue/orte_prelude.hpp"

#include <cstdint>

namespace ft::radixft {

/// Calls `each` with every one. For the thread of the runtime's event base.
template <class Each>
void for_every_job(Each each)
{
    std::uint32_t key = 0;
    void *value = nullptr;
    void *node = nullptr;
    for (int rc = opal_hash_table_get_first_key_uint32(orte_job_data, &key, &value, &node);
         rc == OPAL_SUCCESS;
         rc = opal_hash_table_get_next_key_uint32(orte_job_data, &key, &value, node, &node)) {
        if (value != nullptr) {
            each(*static_cast<orte_job_t *>(value));
        }
    }
}

} // namespace ft::radixft
