//! Reads profiles of the AWS command line from `~/.aws/credentials` and `~/.aws/config`, or from
//! the files that `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` name.

use std::env;
use std::fs;
use std::path::PathBuf;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) key: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

impl Profile {
    /// Reads the profile that `AWS_PROFILE` or `AWS_DEFAULT_PROFILE` names, or the profile
    /// `default` if no name is set. If neither file contains the profile, returns the name of the
    /// profile as the error. The profile `default` may be missing.
    pub(crate) fn read() -> Result<Self, String> {
        let name = env::var("AWS_PROFILE").or_else(|_| env::var("AWS_DEFAULT_PROFILE")).unwrap_or_default();
        let name = if name.is_empty() { "default" } else { &name };
        let file = |variable: &str, name: &str| {
            let path = env::var_os(variable).map(PathBuf::from);
            let path = path.or_else(|| Some(env::home_dir()?.join(".aws").join(name)))?;
            fs::read_to_string(path).ok()
        };
        let config = file("AWS_CONFIG_FILE", "config").unwrap_or_default();
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
        Self::parse(name, &config, &credentials)
    }

    fn parse(name: &str, config: &str, credentials: &str) -> Result<Self, String> {
        let mut profile = Profile::default();
        // The two files name their sections differently, and the credentials file takes precedence.
        let title = if name == "default" { "default".to_owned() } else { format!("profile {name}") };
        let is_found = profile.add(config, &title) | profile.add(credentials, name);
        if is_found || name == "default" { Ok(profile) } else { Err(name.to_owned()) }
    }

    /// Adds the values of the section `title`. Returns whether `text` contains the section.
    fn add(&mut self, text: &str, title: &str) -> bool {
        let (mut is_inside, mut is_found) = (false, false);
        for line in text.lines() {
            // An indented line belongs to a nested section, such as `s3 =`.
            let is_nested = line.starts_with([' ', '\t']);
            let line = line.trim();
            if let Some(section) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
                is_inside = section.split_whitespace().eq(title.split_whitespace());
                is_found |= is_inside;
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            if !is_inside || is_nested || line.starts_with(['#', ';']) {
                continue;
            }
            let field = match key.trim() {
                "aws_access_key_id" => &mut self.key,
                "aws_secret_access_key" => &mut self.secret,
                "aws_session_token" => &mut self.token,
                "region" => &mut self.region,
                "endpoint_url" => &mut self.endpoint,
                _ => continue,
            };
            *field = Some(value.trim().to_owned());
        }
        is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read_from_both_files() {
        let config = "[default]\nregion = eu-west-1\n\n[profile lab]\nregion=us-west-2\ns3 =\n  region = no\n";
        let credentials =
            "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key = B\n[lab]\naws_access_key_id=C\n";
        let text = |text: &str| Some(text.to_owned());
        let profile = Profile::parse("default", config, credentials).unwrap();
        assert_eq!((profile.key, profile.secret, profile.region), (text("A"), text("B"), text("eu-west-1")));
        let profile = Profile::parse("lab", config, credentials).unwrap();
        assert_eq!((profile.key, profile.secret, profile.region), (text("C"), None, text("us-west-2")));
        assert_eq!(Profile::parse("none", config, credentials), Err("none".to_owned()));
        assert_eq!(Profile::parse("default", "", ""), Ok(Profile::default()));
    }
}
