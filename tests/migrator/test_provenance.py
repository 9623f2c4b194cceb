from migrator.provenance import derived_profiles


def test_profiles_of_one_origin_stand_together() -> None:
    derived = {"1g.10gb": "x", "2g.20gb": "", "3g.40gb": "x", "4g.40gb": "y"}
    assert derived_profiles(derived) == "1g.10gb, 3g.40gb = x; 4g.40gb = y"


def test_measured_profiles_are_not_mentioned() -> None:
    assert derived_profiles({"1g.10gb": ""}) == ""
