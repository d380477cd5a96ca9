#include "orte_glue/radixft/introductions.hpp"

#include <algorithm>

namespace ft::radixft {

Bytes encode_contacts(const Contacts &contacts)
{
    std::size_t size = 4;
    for (const auto &[id, uri] : contacts) {
        size += 4 + 4 + uri.size();
    }
    Bytes bytes(size);
    base::WireWriter out(bytes);
    out.u32(static_cast<std::uint32_t>(contacts.size()));
    for (const auto &[id, uri] : contacts) {
        out.u32(id);
        out.u32(static_cast<std::uint32_t>(uri.size()));
        out.bytes(std::as_bytes(std::span(uri)));
    }
    return bytes;
}

Contacts decode_contacts(base::WireReader &in)
{
    Contacts contacts;
    for (std::uint32_t left = in.u32(); left > 0 && in.ok(); --left) {
        const NodeId id = in.u32();
        const std::uint32_t size = in.u32();
        if (size > most_contact) {
            in.fail();
            break;
        }
        const auto uri = in.bytes(size);
        contacts.emplace_back(id,
                              std::string(reinterpret_cast<const char *>(uri.data()), uri.size()));
    }
    return contacts;
}

void Introductions::tick(const std::set<NodeId> &newcomers, std::span<const NodeId> members,
                         const Ways &ways)
{
    if (newcomers.empty()) {
        return;
    }
    std::vector<NodeId> now;
    const std::size_t turns = std::min(std::max(most, newcomers.size() / part), newcomers.size());
    for (auto it = newcomers.upper_bound(last_); now.size() < turns;) {
        it = it == newcomers.end() ? newcomers.begin() : it;
        now.push_back(*it++);
    }
    last_ = now.back();
    const auto contacts_of = [&ways](std::span<const NodeId> daemons) {
        Contacts contacts;
        for (const NodeId id : daemons) {
            contacts.emplace_back(id, ways.contact(id));
        }
        return contacts;
    };
    Contacts theirs = contacts_of(now);
    std::erase_if(theirs, [](const auto &one) { return one.second.empty(); });
    if (const Bytes text = encode_contacts(theirs); !theirs.empty()) {
        for (const NodeId member : members) {
            ways.tell(member, text);
        }
    }
    const Bytes everybody = encode_contacts(contacts_of(members));
    for (const NodeId newcomer : now) {
        ways.invite(newcomer, everybody);
    }
}

} // namespace ft::radixft
