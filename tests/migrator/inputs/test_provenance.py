from migrator.config.sections import SimulationConfig
from migrator.inputs.provenance import derived_profiles, faults_text


def test_profiles_of_one_origin_stand_together() -> None:
    derived = {"1g.10gb": "x", "2g.20gb": "", "3g.40gb": "x", "4g.40gb": "y"}
    assert derived_profiles(derived) == "1g.10gb, 3g.40gb = x; 4g.40gb = y"


def test_measured_profiles_are_not_mentioned() -> None:
    assert derived_profiles({"1g.10gb": ""}) == ""


def test_every_simulated_fault_is_told() -> None:
    others = [{"placement": "1g.10gb@6", "from_s": 250}, {"placement": "1g.10gb@5", "to_s": 430.5}]
    given = {"driver": {"error_share": 0.1, "in_use_share": 0.05}, "others": others}
    assert faults_text(SimulationConfig.model_validate(given)) == (
        "0.1 of the driver's calls are refused; 0.05 of the instances will not go for 5 s; "
        "somebody else has 1g.10gb@6 from 250 s to the end; somebody else has 1g.10gb@5 from the beginning to 430.5 s"
    )
