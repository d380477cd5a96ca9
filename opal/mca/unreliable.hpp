/// \file
/// How a BTL tells a PML that it loses fragments in the ordinary course of things.
///
/// Open MPI's own flags do not: btl/tcp has MCA_BTL_FLAGS_NEED_ACK and MCA_BTL_FLAGS_NEED_CSUM set,
/// too. This one is a bit that Open MPI 4.1 leaves unused.
///
/// A PML that uses such a BTL retransmits, limits what is on its way by what the network takes, and
/// calls the BTL's btl_flush after the last of several sends: until then the BTL may keep them back
/// to give them to the network together. What such a BTL is given with
/// MCA_BTL_DES_FLAGS_BTL_OWNERSHIP and without MCA_BTL_DES_SEND_ALWAYS_CALLBACK it keeps: btl_send
/// tells all there is to tell by its return value, and calls nobody back.
#pragma once
#include <cstdint>

namespace ft::mca {

inline constexpr std::uint32_t btl_flag_unreliable = 0x40000000;

} // namespace ft::mca
