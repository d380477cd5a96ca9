#include "orte_glue/radixft/oob_tcp_objects.hpp"

#include <dlfcn.h>

namespace ft::radixft {

namespace {

class Exports {
  public:
    // Open MPI may have been built with its components inside.
    Exports() : component_(dlopen("mca_oob_tcp.so", RTLD_LAZY | RTLD_NOLOAD)) {}
    Exports(const Exports &) = delete;
    Exports &operator=(const Exports &) = delete;
    ~Exports()
    {
        if (component_ != nullptr) {
            dlclose(component_);
        }
    }
    void *find(const char *name) const
    {
        return dlsym(component_ != nullptr ? component_ : RTLD_DEFAULT, name);
    }
    template <typename Function>
    void find(const char *name, Function *&found) const
    {
        found = reinterpret_cast<Function *>(find(name));
    }
    /// A class whose objects have this size. A class of which there was no object yet has it too.
    opal_class_t *find_class(const char *name, std::size_t bytes) const
    {
        auto *const found = static_cast<opal_class_t *>(find(name));
        return found != nullptr && found->cls_sizeof == bytes ? found : nullptr;
    }

  private:
    void *component_;
};

OobTcp look()
{
    const Exports exports;
    OobTcp found;
    exports.find("mca_oob_tcp_peer_lookup", found.lookup);
    exports.find("mca_oob_tcp_peer_try_connect", found.try_connect);
    exports.find("mca_oob_tcp_recv_handler", found.receive);
    found.address_class = exports.find_class("mca_oob_tcp_addr_t_class", sizeof(OobAddress));
    found.attempt_class = exports.find_class("mca_oob_tcp_conn_op_t_class", sizeof(OobAttempt));
    found.peer_class = exports.find_class("mca_oob_tcp_peer_t_class", sizeof(OobPeerObject));
    const bool messages_as_here =
        exports.find_class("mca_oob_tcp_send_t_class", sizeof(OobSending)) != nullptr &&
        exports.find_class("mca_oob_tcp_recv_t_class", sizeof(OobReceiving)) != nullptr;
    return messages_as_here ? found : OobTcp{};
}

} // namespace

const OobTcp *OobTcp::known() noexcept
{
    // Whoever asks has got something from the channel, or told it something: it is loaded.
    static const OobTcp found = look();
    static const bool all = found.lookup != nullptr && found.try_connect != nullptr &&
                            found.receive != nullptr && found.address_class != nullptr &&
                            found.attempt_class != nullptr && found.peer_class != nullptr;
    return all ? &found : nullptr;
}

} // namespace ft::radixft
