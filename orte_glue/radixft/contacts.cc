// The daemons' addresses, which the runtime keeps in the store of this process's PMIx server.
//
// A daemon keeps what it has looked up or been told. A look into the store waits for the server's
// thread, which a client that dies at the wrong moment can leave before a mutex for ever
// (errmgr_radixft_pmix.cc), and a daemon must be able to knock at others all the same. mpirun looks
// each time: there the runtime replaces the address of a daemon that it has started again.
#include "orte_glue/radixft/daemon.hpp"

#include "orte_glue/radixft/probe.hpp"

#include <map>

namespace ft::radixft {

namespace {

std::map<NodeId, std::string> known; ///< in a daemon; one thread

} // namespace

std::string contact(NodeId id)
{
    if (const auto at = known.find(id); at != known.end()) {
        return at->second;
    }
    orte_process_name_t name = *ORTE_PROC_MY_NAME;
    name.vpid = id;
    char *uri = nullptr;
    int rc = OPAL_ERROR;
    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, OPAL_PMIX_PROC_URI, &name, &uri, OPAL_STRING);
    std::string text;
    if (rc == OPAL_SUCCESS && uri != nullptr) {
        text = uri;
        std::free(uri);
    } else if (id == 0 && orte_process_info.my_hnp_uri != nullptr) {
        text = orte_process_info.my_hnp_uri;
    }
    if (!text.empty() && !ORTE_PROC_IS_HNP) {
        known.emplace(id, text);
    }
    return text;
}

std::vector<sockaddr_storage> addresses_of(NodeId id)
{
    return elsewhere(addresses_in(contact(id)), addresses_in(contact(ORTE_PROC_MY_NAME->vpid)));
}

void remember_contact(NodeId id, const std::string &uri)
{
    if (ORTE_PROC_IS_HNP || uri.empty()) {
        known.erase(id);
    } else {
        known[id] = uri;
    }
    opal_process_name_t name = *ORTE_PROC_MY_NAME;
    name.vpid = id;
    opal_value_t value;
    OBJ_CONSTRUCT(&value, opal_value_t);
    value.key = strdup(OPAL_PMIX_PROC_URI);
    value.type = OPAL_STRING;
    value.data.string = strdup(uri.c_str());
    opal_pmix.store_local(&name, &value);
    OBJ_DESTRUCT(&value);
}

} // namespace ft::radixft
